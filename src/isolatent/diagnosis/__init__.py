"""Tell whether a fit is to be believed, from data without ground truth."""

from isolatent.diagnosis.agreement import agreement
from isolatent.diagnosis.choose import Choice, Trial, choose
from isolatent.diagnosis.consistency import Consistency, consistency
from isolatent.diagnosis.diagnose import diagnose
from isolatent.diagnosis.verdict import ASSUMPTION_KEYS, Check, Diagnosis, ExpectedScore

__all__ = [
    "ASSUMPTION_KEYS",
    "Check",
    "Choice",
    "Consistency",
    "Diagnosis",
    "ExpectedScore",
    "Trial",
    "agreement",
    "choose",
    "consistency",
    "diagnose",
]
