"""Read arrays from a pickle without running anything that the pickle names.

A pickle is a program: unpickling calls whatever functions it names. Here it may name only what
NumPy's arrays are stored with, and even these names stand for functions of this module, which
build arrays of plain numbers from bytes. Containers may be lists, tuples and dictionaries. All
else is refused with its name, before it is called.
"""

from __future__ import annotations

import math
import os
import pickle
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["read_array_pickle"]

NUMBER_KINDS = "biuf"  # of numbers: booleans, integers, floats
PLAIN = (type(None), str, bytes, bool, int, float)


def read_array_pickle(path: str | os.PathLike[str]) -> Any:
    """Return the containers of a pickle, with NumPy arrays of numbers as their leaves.

    Text, numbers and None are allowed, too. The arrays are read-only.

    Raises:
        ValueError: If the file is no complete pickle, or holds anything else.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp(), "arrays.pickle")
        >>> _ = path.write_bytes(pickle.dumps({"a": [np.arange(3)]}))
        >>> read_array_pickle(path)
        {'a': [array([0, 1, 2])]}
        >>> _ = path.write_bytes(pickle.dumps(eval))
        >>> read_array_pickle(path)
        Traceback (most recent call last):
        ValueError: arrays.pickle: refused, since it names builtins.eval; only lists, tuples, \
dictionaries and arrays of numbers are read
    """
    path = Path(path)
    with path.open("rb") as file:
        try:
            loaded = _ArrayUnpickler(_BoundedReader(file, path.stat().st_size)).load()
            return _plain(loaded, {})
        except _RefusedError as refused:
            raise ValueError(
                f"{path.name}: refused, since it {refused}; only lists, tuples, dictionaries and "
                "arrays of numbers are read"
            ) from None
        except (
            *(pickle.UnpicklingError, EOFError, struct.error, MemoryError, OverflowError),
            *(ValueError, TypeError, AttributeError, LookupError, AssertionError, RecursionError),
        ) as error:
            raise ValueError(
                f"{path.name}: not a complete pickle of arrays ({type(error).__name__}: {error})"
            ) from error


class _RefusedError(Exception):
    """Raised for what a pickle must not hold; the message follows "since it"."""


class _BoundedReader:
    """A file that is asked for no more bytes than it has, so that no memory is set aside for them.

    The file is read from its start to its end.
    """

    def __init__(self, file: IO[bytes], size: int) -> None:
        self.file, self.left = file, size

    def read(self, size: int = -1) -> bytes:
        size = self.left if size < 0 else size
        if size > self.left:
            raise EOFError("ends too early")
        self.left -= size
        return self.file.read(size)

    def readline(self) -> bytes:
        line = self.file.readline(min(self.left, 4096))
        self.left -= len(line)
        return line


class _Dtype:
    """A dtype as a pickle describes it: its code, then its byte order as the state."""

    __slots__ = ("code", "order")

    def __init__(self, code: Any) -> None:
        if not isinstance(code, str):
            raise _RefusedError(f"has a dtype of type {type(code).__name__}")
        self.code, self.order = code, "|"

    def __setstate__(self, state: Any) -> None:
        if not isinstance(state, tuple) or len(state) < 5 or state[1] not in tuple("<>|="):
            raise _RefusedError("has a dtype with an unknown state")
        if any(part is not None for part in state[2:5]):
            raise _RefusedError("has a dtype with fields")
        self.order = state[1]

    def resolve(self) -> np.dtype[Any]:
        # One character and a size: no names of fields, shapes or metadata.
        if len(self.code) > 3 or self.code[:1] not in NUMBER_KINDS or not self.code[1:].isdigit():
            raise _RefusedError(f"has an array of dtype {self.code[:20]!r}")
        order = "" if self.order == "|" else self.order
        return np.dtype(order + self.code)


class _Array:
    """An array as a pickle describes it."""

    __slots__ = ("value",)

    def __init__(self, value: NDArray[Any] | None = None) -> None:
        self.value = value

    def __setstate__(self, state: Any) -> None:
        if self.value is not None or not isinstance(state, tuple) or len(state) != 5:
            raise _RefusedError("has an array with an unknown state")
        _, shape, dtype, by_columns, data = state
        self.value = _array(data, dtype, shape, "F" if by_columns else "C")


def _array(data: Any, dtype: Any, shape: Any, order: Any) -> NDArray[Any]:
    if not isinstance(dtype, _Dtype):
        raise _RefusedError(f"has an array with a dtype of type {type(dtype).__name__}")
    kind = dtype.resolve()
    if not isinstance(data, bytes | bytearray):
        raise _RefusedError("has an array of objects")
    if not isinstance(shape, tuple) or len(shape) > 8:
        raise ValueError(f"an array has no shape of up to 8 axes but a {type(shape).__name__}")
    if not all(type(n) is int and 0 <= n < 2**63 for n in shape):
        raise ValueError("an array has a size that is no length of an axis")
    if math.prod(shape) * kind.itemsize != len(data):
        raise ValueError(f"an array of shape {shape} and {kind} has {len(data)} bytes")
    array = np.frombuffer(data, kind).reshape(shape, order="F" if order == "F" else "C")
    array.flags.writeable = False
    return array


class _Name:
    """What the name of a function or class in a pickle stands for.

    It has no attributes that the pickle could set, and is a fresh object in each reading.
    """

    __slots__ = ("build",)

    def __init__(self, build: Callable[..., Any]) -> None:
        self.build = build

    def __call__(self, *arguments: Any) -> Any:
        return self.build(*arguments)

    def __setstate__(self, state: Any) -> None:
        raise _RefusedError("sets the state of a function")


def _reconstruct(kind: Any, shape: Any, code: Any) -> _Array:
    """Stand for NumPy's function that makes an empty array, whose state follows."""
    return _Array()


def _from_buffer(data: Any, dtype: Any, shape: Any, order: Any) -> _Array:
    """Stand for NumPy's function that makes an array from a buffer (protocol 5)."""
    return _Array(_array(data, dtype, shape, order))


def _encode(text: Any, encoding: Any = "latin1") -> bytes:
    """Stand for the function by which protocols before 3 store bytes."""
    if not isinstance(text, str) or not isinstance(encoding, str):
        raise _RefusedError(f"encodes a {type(text).__name__} by a {type(encoding).__name__}")
    if encoding != "latin1":
        raise _RefusedError(f"encodes text as {encoding[:20]!r}")
    return text.encode("latin1")


def _no_bytes() -> bytes:
    """Stand for the class bytes, by which protocols before 3 store empty bytes."""
    return b""


def _dtype(code: Any, *_: Any) -> _Dtype:
    return _Dtype(code)


def _no_instance(*_: Any) -> Any:
    raise _RefusedError("makes an array in an unknown way")


NAMES: dict[tuple[str, str], Callable[..., Any]] = {
    ("numpy", "dtype"): _dtype,
    ("numpy", "ndarray"): _no_instance,
    ("_codecs", "encode"): _encode,
    ("__builtin__", "bytes"): _no_bytes,
    **{
        (f"numpy.{core}.{module}", name): build
        for core in ("core", "_core")
        for module, name, build in (
            ("multiarray", "_reconstruct", _reconstruct),
            ("numeric", "_frombuffer", _from_buffer),
        )
    },
}


# The implementation in Python: the compiled one sets aside as much memory as a file asks for.
class _ArrayUnpickler(pickle._Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in NAMES:
            raise _RefusedError(f"names {module}.{name}")
        return _Name(NAMES[module, name])

    def get_extension(self, code: int) -> Any:
        raise _RefusedError(f"has the extension code {code}")

    def persistent_load(self, pid: Any) -> Any:
        raise _RefusedError("refers to objects outside of the file")

    def load_bytearray8(self: Any) -> None:
        (length,) = struct.unpack("<Q", self.read(8))
        self.append(bytearray(self.read(length)))  # pickle's own sets it aside before it reads

    # Hashing a container visits all that is in it, as often as it is referred to.
    def load_dict(self: Any) -> None:
        _check_keys(self.stack[::2])
        pickle._Unpickler.dispatch[pickle.DICT[0]](self)

    def load_setitem(self: Any) -> None:
        _check_keys(self.stack[-2:-1])
        pickle._Unpickler.dispatch[pickle.SETITEM[0]](self)

    def load_setitems(self: Any) -> None:
        _check_keys(self.stack[::2])
        pickle._Unpickler.dispatch[pickle.SETITEMS[0]](self)

    def load_empty_set(self: Any) -> None:
        raise _RefusedError("holds a set")

    def load_frozenset(self: Any) -> None:
        raise _RefusedError("holds a frozenset")

    dispatch = pickle._Unpickler.dispatch | {
        pickle.BYTEARRAY8[0]: load_bytearray8,
        pickle.DICT[0]: load_dict,
        pickle.SETITEM[0]: load_setitem,
        pickle.SETITEMS[0]: load_setitems,
        pickle.EMPTY_SET[0]: load_empty_set,
        pickle.FROZENSET[0]: load_frozenset,
    }


def _check_keys(keys: Sequence[Any]) -> None:
    for key in keys:
        if not isinstance(key, PLAIN):
            raise _RefusedError(f"has a dictionary with a {type(key).__name__} as a key")


def _plain(value: Any, known: dict[int, Any]) -> Any:
    """Return containers with their arrays in place of what stood for them.

    Args:
        value: What a pickle holds.
        known: Results by the ids of containers, so that each is converted once however often it is
            referred to; None while it is converted.
    """
    if isinstance(value, _Array):
        if value.value is None:
            raise _RefusedError("has an array without data")
        return value.value
    if isinstance(value, PLAIN):
        return value
    if not isinstance(value, list | tuple | dict):
        raise _RefusedError(f"holds a {type(value).__name__}")
    if id(value) not in known:
        known[id(value)] = None
        parts = value.values() if isinstance(value, dict) else value
        converted = [_plain(part, known) for part in parts]
        known[id(value)] = (
            dict(zip(value, converted, strict=True))
            if isinstance(value, dict)
            else type(value)(converted)
        )
    elif known[id(value)] is None:
        raise _RefusedError("has a container that holds itself")
    return known[id(value)]
