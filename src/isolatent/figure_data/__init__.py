"""The data behind figures, prepared once for plots and pages: frozen dataclasses of arrays."""

from isolatent.figure_data.candidates import ChoiceData, choice_data
from isolatent.figure_data.check_values import CheckData, DiagnosisData, diagnosis_data
from isolatent.figure_data.codes import CodesData, OverTimeData, codes_data, over_time_data
from isolatent.figure_data.curves import Curve, TrainingData, training_data
from isolatent.figure_data.factors import AgainstFactorsData, against_factors_data
from isolatent.figure_data.rows import EncodedRows, encode_rows
from isolatent.figure_data.scores import (
    ScoreAgainstPairsData,
    ScoreLine,
    score_against_pairs_data,
)
from isolatent.figure_data.traversal import TraversalData, traversal_data

__all__ = [
    "AgainstFactorsData",
    "CheckData",
    "ChoiceData",
    "CodesData",
    "Curve",
    "DiagnosisData",
    "EncodedRows",
    "OverTimeData",
    "ScoreAgainstPairsData",
    "ScoreLine",
    "TrainingData",
    "TraversalData",
    "against_factors_data",
    "choice_data",
    "codes_data",
    "diagnosis_data",
    "encode_rows",
    "over_time_data",
    "score_against_pairs_data",
    "training_data",
    "traversal_data",
]
