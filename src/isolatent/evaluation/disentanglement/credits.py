"""By how much the splits of a fitted tree lower the squared error at each point."""

from __future__ import annotations

import numpy as np
from numba import njit

__all__ = ["credit_tree"]


@njit(cache=True, nogil=True)
def credit_tree(left, right, code, threshold, columns, residual, credit, place):
    """Add the tree's credit (C, N) and write the leaf of each point; ``left`` is -1 at a leaf.

    A point in a child of a split on code c earns c the credit (r - m)² - (r - m')², where r is its
    residual, m the mean residual of the node and m' that of the child.
    """
    count, total = np.zeros(len(left)), np.zeros(len(left))
    for i in range(len(residual)):
        node = 0
        count[0] += 1.0
        total[0] += residual[i]
        while left[node] >= 0:
            node = left[node] if columns[code[node], i] <= threshold[node] else right[node]
            count[node] += 1.0
            total[node] += residual[i]
        place[i] = node
    for i in range(len(residual)):
        node = 0
        while left[node] >= 0:
            c = code[node]
            child = left[node] if columns[c, i] <= threshold[node] else right[node]
            before = residual[i] - total[node] / count[node]
            after = residual[i] - total[child] / count[child]
            credit[c, i] += before**2 - after**2
            node = child
