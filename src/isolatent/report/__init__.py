"""What a person looks at: one page of HTML that stands by itself, from plain data."""

from isolatent.report.document import is_report, render_page, write_report
from isolatent.report.fits import page_of_fit
from isolatent.report.page import Cell, Curve, Moment, Page, Row, Scatter, Score
from isolatent.report.runs import page_of_runs
from isolatent.report.stored import read_results
from isolatent.report.verdicts import Verdict, judge

__all__ = [
    "Cell",
    "Curve",
    "Moment",
    "Page",
    "Row",
    "Scatter",
    "Score",
    "Verdict",
    "is_report",
    "judge",
    "page_of_fit",
    "page_of_runs",
    "read_results",
    "render_page",
    "write_report",
]
