"""Checkpoints: tensors in safetensors, the rest in JSON, written atomically, never pickled."""

from __future__ import annotations

import hashlib
import json
import os
import re
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError
from safetensors.torch import load as decode_tensors
from safetensors.torch import save as encode_tensors
from torch import Tensor

from isolatent.checks import IsolatentWarning, check_integer
from isolatent.files import (
    PARTIAL_SUFFIX,
    DamagedFileError,
    digest_json,
    read_json,
    reading,
    write_bytes,
)

__all__ = [
    "Checkpoints",
    "DamagedFileError",
    "SavedState",
    "describe_invalid",
    "read_pair",
    "write_pair",
]

NAME = re.compile(r"step-([0-9]{8,})\.(json|safetensors)")
PARTIAL = re.compile(rf"\.{NAME.pattern}\.[0-9a-f]+{re.escape(PARTIAL_SUFFIX)}")
FORMAT = 1  # version of the files; newer ones are refused
READS = 20  # of a pair that is being replaced


Digest = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class _Body(BaseModel):
    """What the JSON of a pair of files holds."""

    model_config = ConfigDict(extra="forbid", strict=True)

    format: int
    checksum: Digest
    tensors: Digest
    record: dict[str, Any]
    before: tuple[Digest, dict[str, Any]] | None = None


def write_pair(stem: Path, tensors: Mapping[str, Tensor], record: Mapping[str, Any]) -> None:
    """Write ``stem.safetensors`` and ``stem.json``, both or neither.

    The JSON holds the checksums of both files and is written last; a new pair exists once its JSON
    does. Where a pair is replaced, a JSON that fits both the old and the new tensors is written
    first, so that a kill at any moment leaves either the old pair or the new one. ``record`` must
    be plain data.
    """
    json_path, tensor_path = _paths(stem)
    data = encode_tensors({name: t.detach().cpu().contiguous() for name, t in tensors.items()})
    body = {"format": FORMAT, "tensors": hashlib.sha256(data).hexdigest(), "record": record}
    text = _signed(body)  # before anything is written: it may hold what JSON cannot
    if json_path.is_file() and tensor_path.is_file():
        with suppress(DamagedFileError):
            old = _read_json(json_path)
            write_bytes(json_path, _signed({**body, "before": [old.tensors, old.record]}))
    write_bytes(tensor_path, data)
    write_bytes(json_path, text)


def read_pair(stem: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read what :func:`write_pair` wrote, or raise :class:`DamagedFileError` naming the file."""
    json_path, tensor_path = _paths(stem)
    for path in (json_path, tensor_path):
        if not path.is_file():
            raise FileNotFoundError(f"{path} does not exist")
    for _ in range(READS):
        body = _read_json(json_path)
        data = tensor_path.read_bytes()
        digest = hashlib.sha256(data).hexdigest()
        records = dict([(body.tensors, body.record), *([body.before] if body.before else [])])
        if digest in records:
            break
        # Perhaps the pair was replaced between the two reads; then the JSON is another one now.
        if _read_json(json_path) == body:
            raise DamagedFileError(
                tensor_path, "it is truncated or was changed, its checksum is wrong"
            )
    else:
        raise DamagedFileError(tensor_path, "it is replaced too often to be read")
    try:
        return decode_tensors(data), records[digest]
    except SafetensorError as error:
        raise DamagedFileError(tensor_path, f"it is not a safetensors file: {error}") from error


def _paths(stem: Path) -> tuple[Path, Path]:
    return stem.with_name(stem.name + ".json"), stem.with_name(stem.name + ".safetensors")


def _read_json(path: Path) -> _Body:
    """Return the contents of a JSON file of isolatent, checked."""
    content = read_json(path)
    if not isinstance(content, dict) or not {"format", "checksum", "record"} <= content.keys():
        raise DamagedFileError(path, "it is truncated or not a file of isolatent")
    known = content["format"]
    if not isinstance(known, int) or known > FORMAT:
        reads = f"format {known!r}; this version of isolatent reads up to {FORMAT}"
        raise DamagedFileError(path, reads, "has ")
    signed = {key: value for key, value in content.items() if key != "checksum"}
    with reading(path):
        matches = content["checksum"] == digest_json(signed)
    if not matches:
        raise DamagedFileError(path, "it was changed: its checksum does not match")
    try:
        # Python's tuples are JSON's lists.
        content["before"] = None if "before" not in content else tuple(content["before"])
        return _Body.model_validate(content)
    except (ValidationError, TypeError) as error:
        raise DamagedFileError(path, describe_invalid(error)) from error


def describe_invalid(error: Exception) -> str:
    """Return one line about what pydantic found wrong first."""
    if not isinstance(error, ValidationError):
        return repr(error)
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(map(str, first["loc"]))
    return f"{where}: {first['msg']}" if where else first["msg"]


def _signed(body: Mapping[str, Any]) -> bytes:
    signed = {**body, "checksum": digest_json(body)}
    return json.dumps(signed, indent=1, allow_nan=False).encode() + b"\n"


class SavedState(NamedTuple):
    """A checkpoint that was read: the step, tensors, plain data, and the file of these."""

    step: int
    tensors: dict[str, Tensor]
    record: dict[str, Any]
    path: Path


class Checkpoints:
    """The checkpoints of one run in a directory, ``step-00001200.json`` and its tensors.

    Args:
        directory: Where they are; created when the first is written.
        keep: How many of the latest to keep. With two, one is left if the last is damaged.
    """

    def __init__(self, directory: str | os.PathLike[str], keep: int = 2) -> None:
        self.directory = Path(directory)
        self.keep = check_integer("keep", keep, at_least=1)

    def write(self, step: int, tensors: Mapping[str, Tensor], record: Mapping[str, Any]) -> None:
        """Write the checkpoint of a step, then remove old ones."""
        self.directory.mkdir(parents=True, exist_ok=True)
        write_pair(self._stem(step), tensors, record)
        for old in self.steps()[: -self.keep]:
            self._remove(old)
        self._remove_leftovers()

    def steps(self) -> list[int]:
        """Return the steps that have a checkpoint, in order."""
        names = (NAME.fullmatch(path.name) for path in self.directory.glob("step-*.json"))
        return sorted(int(name[1]) for name in names if name is not None and name[2] == "json")

    def latest(self) -> SavedState:
        """Return the last intact checkpoint; warn of damaged ones by file name."""
        if not self.directory.is_dir():
            raise FileNotFoundError(f"{self.directory} holds no checkpoint: it does not exist")
        damaged: DamagedFileError | None = None
        for step in reversed(self.steps()):
            try:
                tensors, record = read_pair(self._stem(step))
            except FileNotFoundError as error:
                damaged = damaged or DamagedFileError(self._stem(step), str(error))
                continue
            except DamagedFileError as error:
                damaged = damaged or error
                continue
            if damaged is not None:
                warnings.warn(
                    f"{damaged}; continuing from the checkpoint of step {step} instead",
                    IsolatentWarning,
                    stacklevel=2,
                )
            return SavedState(step, tensors, record, _paths(self._stem(step))[0])
        if damaged is not None:
            reason = f"{damaged.reason}; {self.directory} holds no other intact checkpoint"
            raise DamagedFileError(damaged.path, reason, damaged.verdict)
        raise FileNotFoundError(f"{self.directory} holds no checkpoint")

    def clear(self) -> None:
        """Remove all checkpoints and the temporary files of killed runs, and nothing else."""
        for step in self.steps():
            self._remove(step)
        self._remove_leftovers()

    def _remove_leftovers(self) -> None:
        """Remove the temporary files of runs that were killed while writing."""
        kept = set(self.steps())
        for path in self.directory.glob("*step-*"):
            name = NAME.fullmatch(path.name)
            if PARTIAL.fullmatch(path.name) or (name is not None and int(name[1]) not in kept):
                path.unlink(missing_ok=True)

    def _stem(self, step: int) -> Path:
        return self.directory / f"step-{step:08d}"

    def _remove(self, step: int) -> None:
        stem = self._stem(step)  # the JSON first: without it the tensors are no checkpoint
        for end in (".json", ".safetensors"):
            stem.with_name(stem.name + end).unlink(missing_ok=True)
