"""Output files, which replace existing files only on demand."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["check_writable"]


def check_writable(name: str, path: Path, overwrite: bool) -> None:
    """Raise an error if ``path`` cannot or must not be written."""
    if path.is_dir():
        raise IsADirectoryError(f"{name} must be a file, but {path} is a directory")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{name}: the directory {path.parent} does not exist")
    if path.is_file() and path.stat().st_size and not overwrite:
        raise FileExistsError(f"{name}: {path} exists; pass --overwrite to replace it")
    target = path if path.exists() else path.parent
    if not os.access(target, os.W_OK):
        raise PermissionError(f"{name}: no permission to write {path}")
