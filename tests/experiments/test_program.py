"""The digest of the program changes with the code that a run depends on, and with nothing else."""

import ast
import shutil
from pathlib import Path

import pytest

import isolatent
from isolatent.experiments import program
from isolatent.experiments.program import (
    digest_code,
    is_stale,
    modules_of_runs,
    program_digest,
)

ROOT = Path(isolatent.__file__).parent


@pytest.fixture(scope="module")
def modules():
    return modules_of_runs(ROOT)


def digest_of(folder, monkeypatch):
    monkeypatch.setattr(program.isolatent, "__file__", str(folder / "__init__.py"))
    return program_digest.__wrapped__()


@pytest.fixture
def package(tmp_path):
    """A copy of the package's source."""
    return shutil.copytree(ROOT, tmp_path / "isolatent", ignore=shutil.ignore_patterns("*.pyc"))


def test_modules_of_training_and_scoring_are_part_of_the_program(modules):
    for name in (
        "isolatent.contrast.saturated",
        "isolatent.contrast.kernels.numba_engine",
        "isolatent.encoders.calibration",
        "isolatent.evaluation.mcc",
        "isolatent.experiments.image_execution",
        "isolatent.training.engine",
        "isolatent.worlds.mixings",
        "isolatent.checks",
    ):
        assert name in modules


def test_code_that_shows_results_is_not_part_of_the_program(modules):
    shown = ("isolatent.cli", "isolatent.report", "isolatent.experiments.display")
    shown += ("isolatent.experiments.results", "isolatent.training.progress")
    assert not [name for name in modules if name.startswith(shown)]
    assert "isolatent" not in modules  # it loads names on demand


def test_every_import_of_a_program_module_is_followed(modules):
    """All modules of the package that are loaded by a run, but for those that are left out."""
    for name, tree in modules.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("isolatent."):
                left_out = node.module.startswith(program.NOT_FOLLOWED)
                typing_only = "TYPE_CHECKING" in ast.dump(tree)
                assert node.module in modules or left_out or typing_only, (name, node.module)


def test_the_digest_does_not_depend_on_comments_docstrings_and_layout(package, monkeypatch):
    before = digest_of(package, monkeypatch)
    assert before == program_digest()
    for path in package.rglob("*.py"):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            body = getattr(node, "body", None)
            if isinstance(node, program.DOCUMENTED) and ast.get_docstring(node):
                body[0].value.value = "Another docstring."
        path.write_text("# a comment\n" + ast.unparse(tree))
    assert digest_of(package, monkeypatch) == before


@pytest.mark.parametrize(
    ("file", "old", "new", "changes"),
    [
        ("training/calibration.py", "MAX_EVALUATIONS = 25", "MAX_EVALUATIONS = 26", True),
        ("contrast/saturated.py", "import math", "import math\nX = 1", True),
        ("report/runs.py", "RERUN_DIRECTORY =", "OTHER =", False),
        ("experiments/results.py", "CLOSE = 0.5", "CLOSE = 0.6", False),
        ("cli/app.py", "import", "import sys\nimport", False),
    ],
)
def test_the_digest_changes_with_code_of_runs_only(package, monkeypatch, file, old, new, changes):
    before = digest_of(package, monkeypatch)
    path = package / file
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    assert (digest_of(package, monkeypatch) != before) == changes


def test_a_record_of_another_or_an_unknown_program_is_stale():
    assert not is_stale({"program": program_digest()})
    assert is_stale({"program": "0123456789abcdef"})
    assert is_stale({})


def test_a_program_with_another_entry_point_has_its_modules():
    diagnosis = modules_of_runs(ROOT, "isolatent.diagnosis")
    assert {"isolatent.diagnosis.rehearsal", "isolatent.training.engine"} <= diagnosis.keys()
    assert "isolatent.experiments.execution" not in diagnosis
    assert program_digest("isolatent.diagnosis") != program_digest()


def test_the_digest_of_a_file_depends_on_its_code_alone(tmp_path):
    """Worlds of a benchmark may be described anew without their fits being run again."""
    before, commented, changed = (tmp_path / f"{name}.py" for name in "abc")
    before.write_text(
        '"""Worlds."""\n\nWIDTH = 0.1\n\n\ndef draw():\n    """Draw."""\n    return 1\n'
    )
    commented.write_text('"""Other."""\nWIDTH = (0.1)  # of steps\ndef draw():\n    return 1\n')
    changed.write_text(before.read_text().replace("0.1", "0.2"))
    assert digest_code(before) == digest_code(commented)
    assert digest_code(before) != digest_code(changed)
    assert digest_code(before, changed) != digest_code(changed, before)
