"""Files that are written whole or not at all, and their names."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["file_name", "whole_file", "write_whole"]


@contextmanager
def whole_file(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A file to write beside ``path``, which takes its place once the block ends well.

    Whatever goes wrong, ``path`` stays as it was and nothing partial stays beside it.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> with TemporaryDirectory() as folder:
        ...     with whole_file(f"{folder}/a.txt") as partial:
        ...         _ = partial.write_text("all of it")
        ...     [(file.name, file.read_text()) for file in Path(folder).iterdir()]
        [('a.txt', 'all of it')]
    """
    target = Path(path).resolve()  # a link stays a link
    if target.exists() and not target.is_file():  # a pipe or a terminal
        yield target
        return
    # The name ends otherwise than the target's, lest one who looks for *.json should find it.
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        yield partial
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def write_whole(path: str | os.PathLike[str], text: str) -> None:
    """Write a text: all of it or nothing."""
    with whole_file(path) as partial:
        partial.write_text(text, encoding="utf-8", newline="\n")


def file_name(name: str) -> str:
    """The name of an experiment as a part of a file's name.

    Example:
        >>> file_name("zimmermann2021/table1")
        'zimmermann2021-table1'
    """
    return name.replace("/", "-")
