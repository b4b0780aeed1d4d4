"""Find files of published datasets, by path or in the directory that ISOLATENT_DATA names."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["PathLike", "Publication"]

PathLike = str | os.PathLike[str]


@dataclass(frozen=True)
class Publication:
    """A published dataset, whose files users download themselves.

    Args:
        dataset: Name of the dataset, for messages.
        origin: Which archive holds its files and where its authors publish it, for messages.
        folders: Folders in which the files may be, as archives unpack them.

    Example:
        >>> letters = Publication("Letters", "letters.zip, on the page of its authors")
        >>> letters.find("nowhere", "a.bin")
        Traceback (most recent call last):
        FileNotFoundError: nowhere: does not exist; expected a.bin of Letters (letters.zip, on the page of its authors)
    """  # noqa: E501

    dataset: str
    origin: str
    folders: tuple[str, ...] = ()

    def find(self, path: PathLike | None, names: str | Sequence[str]) -> Path:
        """Return the path of a file or folder of the dataset.

        Args:
            path: The file, or a directory that holds it, possibly in one of ``folders``; by default
                the directory in the environment variable ``ISOLATENT_DATA``. A file is returned
                whatever its name.
            names: Name of the file, or several that it may have, the preferred one first.

        Raises:
            ValueError: If neither a path is given nor ISOLATENT_DATA is set.
            FileNotFoundError: If the file does not exist.
        """
        names = (names,) if isinstance(names, str) else tuple(names)
        if path is None:
            path = os.environ.get("ISOLATENT_DATA")
            if not path:
                raise ValueError(
                    f"path must be {names[0]} or its directory, or ISOLATENT_DATA must name that "
                    f"directory; got neither. It is part of {self.dataset} ({self.origin})"
                )
        if not isinstance(path, str | os.PathLike):
            raise TypeError(f"path must be {names[0]} or its directory, or None, got {path!r}")
        where = Path(path)
        if where.is_file() or (where.is_dir() and where.name in names):
            return where
        for folder in ("", *self.folders):
            for name in names:
                if (found := where / folder / name).exists():
                    return found
        where = where / names[0] if where.is_dir() else where
        raise FileNotFoundError(
            f"{where}: does not exist; expected {names[0]} of {self.dataset} ({self.origin})"
        )
