"""Codes against known factors: correlations, the best assignment, and linear predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from isolatent.evaluation.columns import as_columns, as_factors_and_codes
from isolatent.evaluation.linear import linear_r2
from isolatent.evaluation.mcc import best_assignment, standardised_columns
from isolatent.figure_data.rows import Array, EncodedRows

__all__ = ["AgainstFactorsData", "against_factors_data"]


@dataclass(frozen=True)
class AgainstFactorsData:
    """Codes against known factors.

    Attributes:
        correlations: Correlation (F, n) of each factor with each code, with its sign.
        matched: Number of the code (F,) that the best one-to-one assignment gives each factor; -1
            for none.
        order: Numbers of all codes (n,), those of the factors first, in the order of the factors.
        r2: Share of each factor's variance (F,) that a linear map of all codes predicts on the
            half of the rows that it was not fitted to; NaN where there are too few rows.
        mcc: Mean absolute correlation of matched factors and codes.
        linear_r2: Mean of ``r2``.
        factor_names: Names of the factors.
        code_names: Names of the codes, in the order of the columns of ``correlations``.
        method: ``"pearson"`` or ``"spearman"``.
        n_rows: Number of rows that have codes and factors.
    """

    correlations: Array
    matched: Array
    order: Array
    r2: Array
    mcc: float
    linear_r2: float
    factor_names: tuple[str, ...]
    code_names: tuple[str, ...]
    method: str
    n_rows: int


def against_factors_data(
    rows: EncodedRows,
    factors: Any,
    *,
    factor_names: Sequence[str] | None = None,
    method: str = "pearson",
) -> AgainstFactorsData:
    """Return how codes go with known factors; rows without codes or factors are left out.

    Args:
        rows: The result of :func:`encode_rows`.
        factors: Factors (N, F) or (N,); NaN where they are not known.
        factor_names: Their names; by default the columns of a data frame, or numbers.
        method: ``"pearson"``, or ``"spearman"`` for ranks.

    Example:
        >>> from isolatent.figure_data import encode_rows
        >>> z = np.random.default_rng(0).normal(size=(100, 2))
        >>> data = against_factors_data(encode_rows(-z[:, ::-1]), z)
        >>> data.matched.tolist(), data.correlations[[0, 1], [1, 0]].round(3).tolist()
        ([1, 0], [-1.0, -1.0])
    """
    if factor_names is None and hasattr(factors, "columns"):
        factor_names = [str(name) for name in factors.columns]
    values: Any = np.asarray(factors.detach().cpu() if hasattr(factors, "detach") else factors)
    values = values[:, None] if values.ndim == 1 else values
    if values.ndim != 2 or len(values) != len(rows.codes):
        raise ValueError(
            f"factors must have shape ({len(rows.codes)}, F), one row for each of the codes, got "
            f"{np.shape(factors)}"
        )
    if values.dtype.kind not in "fiub":
        raise TypeError(f"factors must hold real numbers, got dtype {values.dtype}")
    usable = np.isfinite(rows.codes).all(axis=1) & np.isfinite(values).all(axis=1)
    z, h = as_factors_and_codes(
        as_columns("factors", values[usable], 3), as_columns("codes", rows.codes[usable], 3)
    )
    count = z.shape[1]
    if factor_names is None:
        factor_names = [f"factor {k}" for k in range(count)]
    if len(factor_names) != count:
        raise ValueError(f"factor_names must be {count} names, got {len(factor_names)}")
    first, second = standardised_columns(z, h, method)
    correlations = np.clip(first.T @ second / len(h), -1.0, 1.0)
    pairs = best_assignment(np.abs(correlations))
    matched = np.full(count, -1)
    matched[pairs[0]] = pairs[1]
    taken = [int(k) for k in matched if k >= 0]
    order = np.array([*taken, *(k for k in range(h.shape[1]) if k not in taken)])
    found = np.zeros(count)
    found[pairs[0]] = np.abs(correlations[pairs])
    try:
        r2 = linear_r2(z, h, per_factor=True)
    except ValueError:  # too few rows, or a factor that is constant in half of them
        r2 = np.full(count, np.nan)
    return AgainstFactorsData(
        correlations,
        matched,
        order,
        r2,
        float(found.mean()),
        float(r2.mean()),
        tuple(map(str, factor_names)),
        rows.names,
        method,
        len(h),
    )
