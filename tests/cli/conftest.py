"""The command, run in this process as a person would type it."""

import sys
from types import SimpleNamespace

import pytest

from isolatent.cli import main


@pytest.fixture
def isolatent(monkeypatch, capsys, tmp_path):
    """Call with arguments; gives the exit code and what was printed. Files go to tmp_path."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["isolatent", *map(str, arguments)])
        with pytest.raises(SystemExit) as stopped:
            main()
        out, err = capsys.readouterr()
        return SimpleNamespace(code=stopped.value.code or 0, out=out, err=err)

    return run
