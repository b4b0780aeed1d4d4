"""The page as one HTML file that needs no network: templates, security policy and library."""

from __future__ import annotations

import base64
import gzip
import hashlib
import os
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from isolatent import __version__
from isolatent.files import write_text
from isolatent.report.content import Explorer, Figures, Part, clean
from isolatent.report.page import Page
from isolatent.report.sections import Entry, render_results, render_section

__all__ = ["is_report", "render_page", "write_report"]

GENERATOR = "isolatent"
MIN_FOLDED = 5  # sections from which on they are folded, to keep a long page readable
SCRIPTS = ("page.js", "figures.js", "explorer.js")


def write_report(
    path: str | os.PathLike[str],
    page: Page,
    *,
    overwrite: bool = False,
    refresh: float | None = None,
) -> None:
    """Write a page to a file, atomically.

    Args:
        path: The file. Its directory must exist.
        page: The content.
        overwrite: Whether to replace an existing file.
        refresh: Seconds after which a browser reads the file again; None for never.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as directory:
        ...     write_report(f"{directory}/report.html", Page("Results"))
        ...     is_report(f"{directory}/report.html")
        True
    """
    if Path(path).exists() and not overwrite:
        raise FileExistsError(f"path: {path} exists; pass overwrite=True to replace it")
    write_text(path, render_page(page, refresh=refresh))


def is_report(path: str | os.PathLike[str]) -> bool:
    """Return whether a file was written by :func:`write_report`."""
    try:
        with Path(path).open("rb") as file:
            return f'<meta name="generator" content="{GENERATOR} '.encode() in file.read(1024)
    except OSError:
        return False


def render_page(page: Page, *, refresh: float | None = None) -> str:
    """Render a page as HTML; the same page gives the same text.

    A page with figures holds one compressed copy of plotly.js, 2 MB, however many figures it has.

    Args:
        page: The content.
        refresh: Seconds after which a browser reads the page again; None for never.

    Example:
        >>> render_page(Page("A <page>")).count("A &lt;page&gt;")
        2
    """
    anchors = {section.name: f"section{k}" for k, section in enumerate(page.sections, 1)}
    results = render_results(page.table, page.sections, anchors) if page.table else ()
    sections = [render_section(section, anchors[section.name]) for section in page.sections]
    figures = _figures_of(Entry("", "", None, results, ()), *sections)
    library, sources = ("", "") if not figures else (packed_library(), _library_digest())
    script = "\n".join(_file(name) for name in SCRIPTS)
    return (
        _environment()
        .get_template("page.html")
        .render(
            page=page,
            results=results,
            sections=sections,
            folded=len(page.sections) >= MIN_FOLDED,
            figures=figures,
            library=Markup(library),
            generator=f"{GENERATOR} {__version__}",
            version=__version__,
            policy=_policy(_digest(script), sources),
            refresh=refresh,
            style=Markup(_file("style.css")),
            script=Markup(script),
        )
    )


def _figures_of(*entries: Entry) -> dict[str, Any]:
    """Return the data of all figures by their ids."""
    found: dict[str, Any] = {}
    for entry in entries:
        parts = (Part("", entry.lead), *entry.parts)
        for block in (block for part in parts for block in part.blocks):
            if isinstance(block, Figures):
                for one in block.figures:
                    found[one.key] = {"data": one.data, "layout": one.layout}
            elif isinstance(block, Explorer):
                found[block.key] = block.data
    return found


@cache
def packed_library() -> str:
    """Return plotly.js, compressed, in base64."""
    return base64.b64encode(gzip.compress(_library(), 9, mtime=0)).decode()


@cache
def _library() -> bytes:
    return resources.files("plotly").joinpath("package_data", "plotly.min.js").read_bytes()


@cache
def _library_digest() -> str:
    return _digest(_library().decode("utf-8"))


def _digest(script: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"


def _policy(*digests: str) -> str:
    """Return a security policy: load nothing, run no script but ours, evaluate no string."""
    listed = " ".join(digest for digest in digests if digest)
    return (
        f"default-src 'none'; img-src data: blob:; script-src {listed}; "
        "style-src 'unsafe-inline'; form-action 'none'; base-uri 'none'"
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("isolatent.report", "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        keep_trailing_newline=True,
    )
    environment.filters["lower_first"] = lambda text: text[:1].lower() + text[1:]
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    return environment


def _finalize(value: Any) -> Any:
    """Replace forbidden characters of every text that is not Markup."""
    return clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _file(name: str) -> str:
    return resources.files("isolatent.report").joinpath("templates", name).read_text("utf-8")
