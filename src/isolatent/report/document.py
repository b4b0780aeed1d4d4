"""The page as one HTML file that needs neither network nor library."""

from __future__ import annotations

import base64
import hashlib
import os
from importlib import resources
from pathlib import Path

from isolatent import __version__
from isolatent.files import write_text
from isolatent.report.colours import colour_style
from isolatent.report.elements import Markup, element, facts_list
from isolatent.report.page import Page
from isolatent.report.sections import render_section
from isolatent.report.tables import results_table

__all__ = ["is_report", "render_page", "write_report"]

GENERATOR = '<meta name="generator" content="isolatent '
MIN_FOLDED = 5  # sections from which on they are folded, to keep a long page readable


def write_report(path: str | os.PathLike[str], page: Page, *, overwrite: bool = False) -> None:
    """Write a page to a file, atomically.

    Args:
        path: The file. Its directory must exist.
        page: The content.
        overwrite: Whether to replace an existing file.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as directory:
        ...     write_report(f"{directory}/report.html", Page("Results"))
        ...     is_report(f"{directory}/report.html")
        True
    """
    if Path(path).exists() and not overwrite:
        raise FileExistsError(f"path: {path} exists; pass overwrite=True to replace it")
    write_text(path, render_page(page))


def is_report(path: str | os.PathLike[str]) -> bool:
    """Return whether a file was written by :func:`write_report`."""
    try:
        with Path(path).open("rb") as file:
            return GENERATOR.encode() in file.read(1024)
    except OSError:
        return False


def render_page(page: Page) -> str:
    """Render a page as HTML; the same page gives the same text.

    Example:
        >>> render_page(Page("A <page>")).count("A &lt;page&gt;")
        2
    """
    anchors = {section.name: f"section{k}" for k, section in enumerate(page.sections, 1)}
    style = colour_style() + "\n" + _file("style.css")
    script = _file("behaviour.js")
    table = None
    if page.table:
        table = element(
            "section",
            element("h2", "Results", id="results-name"),
            results_table(page.table, anchors),
            element("p", id="sorted", role="status", class_="unseen"),
            aria_labelledby="results-name",
        )
    folded = len(page.sections) >= MIN_FOLDED
    sections = (render_section(own, anchors[own.name], folded) for own in page.sections)
    head = element(
        "head",
        element("meta", charset="utf-8"),
        Markup(f'{GENERATOR}{__version__}">'),
        element("meta", http_equiv="Content-Security-Policy", content=_policy(script)),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", page.title),
        Markup(f"<style>{style}</style>"),
    )
    body = element(
        "body",
        element("a", "Skip to the content", href="#content", class_="skip"),
        element(
            "header",
            element("h1", page.title),
            *(element("p", paragraph) for paragraph in page.summary),
            facts_list(page.facts),
        ),
        element("main", table, *sections, id="content", tabindex="-1"),
        element("footer", element("p", f"Written by isolatent {__version__}.")),
        Markup(f"<script>{script}</script>"),
    )
    return f'<!doctype html>\n<html lang="en">\n{head}\n{body}\n</html>\n'


def _policy(script: str) -> str:
    """Return a security policy: load nothing but inline images, run no script but ours."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; img-src data:; script-src 'sha256-{digest}'; "
        "style-src 'unsafe-inline'"
    )


def _file(name: str) -> str:
    return resources.files("isolatent.report").joinpath(name).read_text(encoding="utf-8")
