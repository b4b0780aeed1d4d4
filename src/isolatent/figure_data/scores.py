"""Names of scores, and scores by the number of pairs, from records of runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from isolatent.figure_data.rows import Array, read_number

__all__ = ["ScoreAgainstPairsData", "ScoreLine", "score_against_pairs_data", "score_name"]

SCORE_NAMES = {
    "linear_r2": "R² (linear)",
    "mcc": "MCC",
    "block_r2": "R² (blocks)",
    "block_mcc": "MCC (blocks)",
    "beta_vae": "BetaVAE",
    "factor_vae": "FactorVAE",
    "mig": "MIG",
    "disentanglement": "DCI, D",
    "completeness": "DCI, C",
    "informativeness": "DCI, I",
    "modularity": "Modularity",
    "explicitness": "Explicitness",
    "sap": "SAP",
}


@dataclass(frozen=True)
class ScoreLine:
    """Scores of one method.

    Attributes:
        method: Its name.
        pairs: Numbers of pairs (K,), increasing.
        mean: Mean score (K,) over runs.
        lowest: Lowest score (K,).
        highest: Highest score (K,).
        counts: Number of runs (K,).
        run_pairs: Number of pairs (R,) of each run.
        run_scores: Its score (R,).
        n_failed: Number of runs without a score.
    """

    method: str
    pairs: Array
    mean: Array
    lowest: Array
    highest: Array
    counts: Array
    run_pairs: Array
    run_scores: Array
    n_failed: int


@dataclass(frozen=True)
class ScoreAgainstPairsData:
    """Scores by the number of pairs.

    Attributes:
        lines: One for each method, in the order of the records.
        score: Name of the score.
    """

    lines: tuple[ScoreLine, ...]
    score: str


def score_name(name: str) -> str:
    """Return the name of a metric as papers write it.

    Example:
        >>> score_name("mcc"), score_name("linear_r2_block2")
        ('MCC', 'R² (linear), block 2')
    """
    whole, block, number = name.partition("_block")
    if block and number.isdigit():
        return f"{score_name(whole)}, block {number}"
    return SCORE_NAMES.get(name, name)


def score_against_pairs_data(
    records: Iterable[Mapping[str, Any]],
    *,
    score: str = "mcc",
    pairs: str = "pairs",
    method: str = "method",
) -> ScoreAgainstPairsData:
    """Return the scores of methods by the number of pairs.

    Args:
        records: A mapping for each run. A score that is missing or not finite counts as failed.
        score: Key of the score.
        pairs: Key of the number of pairs.
        method: Key of the method's name.

    Example:
        >>> runs = [{"method": "ours", "pairs": n, "mcc": 1 - 9 / n} for n in (1000, 100, 100)]
        >>> (line,) = score_against_pairs_data(runs).lines
        >>> line.pairs.tolist(), line.mean.round(3).tolist(), line.counts.tolist()
        ([100.0, 1000.0], [0.91, 0.991], [2, 1])
    """
    found: dict[str, list[tuple[float, float]]] = {}
    failed: dict[str, int] = {}
    for number, record in enumerate(records):
        if not isinstance(record, Mapping):
            raise TypeError(f"records must be mappings, got {type(record).__name__}")
        for key in (pairs, method):
            if key not in record:
                keys = ", ".join(map(repr, record))
                raise ValueError(f"records must have {key!r}, but record {number} has {keys}")
        size = read_number(record[pairs])
        if size is None or size <= 0:
            raise ValueError(
                f"records must have a positive number of pairs, got {record[pairs]!r} in record "
                f"{number}"
            )
        name, value = str(record[method]), read_number(record.get(score))
        found.setdefault(name, [])
        failed.setdefault(name, 0)
        if value is None:
            failed[name] += 1
        else:
            found[name].append((size, value))
    if not any(found.values()):
        raise ValueError(f"records must have at least one score {score!r}, got none")
    lines = tuple(_line(name, runs, failed[name]) for name, runs in found.items())
    return ScoreAgainstPairsData(lines, score)


def _line(name: str, runs: list[tuple[float, float]], failed: int) -> ScoreLine:
    table = np.array(runs, dtype=np.float64).reshape(-1, 2)
    sizes = np.unique(table[:, 0])
    parts = [table[table[:, 0] == size, 1] for size in sizes]
    mean, lowest, highest = (
        np.array([pick(part) for part in parts]) for pick in (np.mean, np.min, np.max)
    )
    counts = np.array([len(part) for part in parts], dtype=np.intp)
    return ScoreLine(name, sizes, mean, lowest, highest, counts, table[:, 0], table[:, 1], failed)
