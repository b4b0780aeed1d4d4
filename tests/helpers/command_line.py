"""Run the command line in this process, and compare the contents of directories."""

import hashlib
import sys

import pytest

from isolatent.cli import main

# Options of a short fit.
QUICK = ("--n-components", "3", "--max-steps", "20", "--batch-size", "64")
NAMES = ["left", "right", "up"]


def run_main(monkeypatch, *arguments):
    """Run a command and return its exit code."""
    monkeypatch.setattr(sys, "argv", ["isolatent", *map(str, arguments)])
    with pytest.raises(SystemExit) as stopped:
        main()
    return stopped.value.code or 0


def contents(folder):
    """Return every path below a directory with the hash of its content."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        if path.is_file()
        else "directory"
        for path in sorted(folder.rglob("*"))
    }
