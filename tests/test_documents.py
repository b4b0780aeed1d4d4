"""Tables in documents are those of the stored results."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SPEC = importlib.util.spec_from_file_location("fill_tables", ROOT / "docs" / "fill_tables.py")
fill_tables = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(fill_tables)


@pytest.mark.parametrize("path", fill_tables.DOCUMENTS, ids=lambda path: path.name)
def test_tables_are_as_the_stored_results_make_them(path):
    text = path.read_text(encoding="utf-8")
    assert fill_tables.BLOCK.search(text)
    assert fill_tables.filled(text) == text
