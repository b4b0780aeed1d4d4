"""What a person looks at: one page of HTML that stands by itself, from plain data."""

from isolatent.report.document import is_report, render_page, write_report
from isolatent.report.fits import page_of_fit
from isolatent.report.page import Cell, Curve, Moment, Page, Row, Scatter, Score
from isolatent.report.runs import page_of_runs
from isolatent.report.verdicts import Estimate, Verdict, compare

__all__ = [
    "Cell",
    "Curve",
    "Estimate",
    "Moment",
    "Page",
    "Row",
    "Scatter",
    "Score",
    "Verdict",
    "compare",
    "is_report",
    "page_of_fit",
    "page_of_runs",
    "render_page",
    "write_report",
]
