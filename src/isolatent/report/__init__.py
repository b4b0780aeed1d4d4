"""Reports: one self-contained HTML page about a fitted model or about experiments."""

from isolatent.report.agreements import page_of_consistency
from isolatent.report.choices import page_of_choice
from isolatent.report.diagnosed import read_diagnosis
from isolatent.report.document import is_report, render_page, write_report
from isolatent.report.explore import explore
from isolatent.report.fits import page_of_fit
from isolatent.report.live import LiveReport, page_of_training
from isolatent.report.page import (
    Comparison,
    Headline,
    Page,
    Score,
    Section,
    Verdict,
)
from isolatent.report.records import read_results
from isolatent.report.runs import judge, page_of_runs

__all__ = [
    "Comparison",
    "Headline",
    "LiveReport",
    "Page",
    "Score",
    "Section",
    "Verdict",
    "explore",
    "is_report",
    "judge",
    "page_of_choice",
    "page_of_consistency",
    "page_of_fit",
    "page_of_runs",
    "page_of_training",
    "read_diagnosis",
    "read_results",
    "render_page",
    "write_report",
]
