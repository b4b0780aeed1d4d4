"""Figures for notebooks and papers, drawn by matplotlib: functions take ``ax=`` and return it.

They need the extra ``isolatent[plot]``, follow the user's own settings of matplotlib
(``matplotlib.rcParams`` and style sheets), and change none. ``docs/plot.md`` shows each of them.
"""

from isolatent.plot.of_codes import against_factors, codes, over_time, traversal
from isolatent.plot.of_runs import choice, diagnosis, score_against_pairs, training

__all__ = [
    "against_factors",
    "choice",
    "codes",
    "diagnosis",
    "over_time",
    "score_against_pairs",
    "training",
    "traversal",
]
