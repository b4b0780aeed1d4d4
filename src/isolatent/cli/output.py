"""Writing files without losing what was there."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

__all__ = ["LARGEST_SEED", "check_writable", "command_line"]

LARGEST_SEED = 2**32 - 1  # what NumPy takes


def check_writable(name: str, path: Path, overwrite: bool) -> None:
    """Raise an error, before any work is done, if ``path`` cannot or must not be written."""
    if path.is_dir():
        raise IsADirectoryError(f"{name} must be a file, but {path} is a directory")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{name}: the directory {path.parent} does not exist")
    if path.is_file() and path.stat().st_size and not overwrite:
        raise FileExistsError(f"{name}: {path} exists; pass --overwrite to replace it")
    target = path if path.exists() else path.parent
    if not os.access(target, os.W_OK):
        raise PermissionError(f"{name}: no permission to write {path}")


def command_line() -> str:
    """The command that is running, without what concerns files that are there already."""
    words = [word for word in sys.argv[1:] if word not in ("--overwrite", "--resume")]
    return f"isolatent {shlex.join(words)}"
