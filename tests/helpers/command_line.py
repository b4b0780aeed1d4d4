"""The command as a person types it, the options of a short fit, and what is on disk."""

import hashlib
import sys

import pytest

from isolatent.cli import main

QUICK = ("--n-components", "3", "--max-steps", "20", "--batch-size", "64")
NAMES = ["left", "right", "up"]


def run_main(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["isolatent", *map(str, arguments)])
    with pytest.raises(SystemExit) as stopped:
        main()
    return stopped.value.code or 0


def contents(folder):
    """Every path below and a hash of what it holds."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        if path.is_file()
        else "directory"
        for path in sorted(folder.rglob("*"))
    }
