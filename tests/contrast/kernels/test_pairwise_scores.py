"""The oracle equals loops over pairs."""

import math

import pytest
import torch


def score(problem, i, j):
    u, v, p, w, a, b, m, _ = (
        x.tolist() if isinstance(x, torch.Tensor) else x for x in problem.scores()
    )
    terms = zip(w, u[i], v[j], strict=True)
    if p is None:
        return m[i] * sum(c * x * y for c, x, y in terms) - a[i] - b[j]
    return -m[i] * sum(c * abs(x - y) ** p for c, x, y in terms) - a[i] - b[j]


def logsumexp(values):
    return math.log(sum(math.exp(s) for s in values)) if values else -math.inf


@pytest.mark.parametrize("p", [None, 1, 1.7, 2, 3])
def test_values_by_explicit_loops(lab, p):
    for reduction in ("row_logsumexp", "row_softplus", "both_logsumexp"):
        problem = lab.draw(reduction, p, 4, 3, 2, scaled=True, skip=True, seed=2)
        skip = problem.skip.tolist()
        assert -1 in skip
        s = {(i, j): score(problem, i, j) for i in range(4) for j in range(3) if j != skip[i]}
        rows = [[x for (i, _), x in s.items() if i == row] for row in range(4)]
        columns = [[x for (_, j), x in s.items() if j == column] for column in range(3)]
        if reduction == "row_softplus":
            expected = [[sum(math.log1p(math.exp(x)) for x in row) for row in rows]]
        else:
            expected = [[logsumexp(row) for row in rows], [logsumexp(c) for c in columns]]
        got = lab.evaluate(problem, "dense")
        for k in range(2 if reduction == "both_logsumexp" else 1):
            assert got[f"value {k}"].tolist() == pytest.approx(expected[k], rel=1e-12)
