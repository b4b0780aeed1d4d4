"""Read files as laboratories have them, each by the library of its format.

HDF5, MATLAB, NWB, AnnData, Zarr and NetCDF. Only numbers and text are read: objects, references and
whatever would have to be unpickled are refused.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from isolatent.files import DamagedFileError
from isolatent.pairs.readers.array_files import Listed, contents_of
from isolatent.pairs.readers.faults import damaged_as, listed, unknown_name
from isolatent.pairs.readers.selection import (
    Contents,
    Selection,
    check_memory,
    ids_of,
)

__all__ = [
    "Hdf5Store",
    "MatlabStore",
    "ZarrStore",
    "read_anndata",
    "read_hdf5",
    "read_matlab",
    "read_netcdf",
    "read_nwb",
    "read_zarr",
]

Array: TypeAlias = npt.NDArray[Any]

HDF5_MAGIC = b"\x89HDF\r\n\x1a\n"
COMPRESSED = 15  # the type of a compressed variable of MATLAB
STRUCT_COPIES = 2  # of a struct that is read: its bytes, and its arrays
DEEPEST_STRUCT = 5  # structs within each other
MAX_ARRAYS = 10_000  # that are listed of a file
REFUSED = "is refused: "  # a verdict on files that are whole
SAFE_CODECS = {
    *("adler32", "bitround", "blosc", "bytes", "bz2", "crc32", "crc32c", "delta", "endian"),
    *("fixedscaleoffset", "fletcher32", "gzip", "lz4", "lzma", "packbits", "quantize", "shuffle"),
    *("sharding_indexed", "transpose", "vlen-bytes", "vlen-utf8", "zlib", "zstd"),
}  # of Zarr; "pickle" runs code, and codecs that are not known may


def require(module: str, package: str, what: str) -> Any:
    """Import the library of a format, or say how to install it.

    Args:
        module: Name of the module.
        package: Name of the package that has it.
        what: What it reads, for the message.

    Example:
        >>> require("h6py", "h6py", "x.h6")
        Traceback (most recent call last):
        ImportError: x.h6 needs h6py: pip install h6py, or pip install 'isolatent[io]'
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{what} needs {package}: pip install {package}, or pip install 'isolatent[io]'"
        ) from error


# HDF5, and MATLAB from version 7.3 on


class Hdf5Store:
    """The datasets of an HDF5 file, by their paths; nothing is read of other files.

    Links to them are not listed. Datasets that have their values there, or are virtual, are listed
    but refused when they are read.

    Args:
        path: The file.
        matlab: Whether MATLAB wrote it, which reverses the order of axes.
    """

    def __init__(self, path: Path, matlab: bool = False) -> None:
        self.path, self.matlab = path, matlab
        self._h5py = require("h5py", "h5py", path.name)
        self.arrays: dict[str, Listed] = {}
        with damaged_as(path), self._h5py.File(path, "r") as file:
            for name, dataset in self._walk(file):
                self.arrays[name] = self._listed(dataset)

    def _walk(self, file: Any) -> Iterator[tuple[str, Any]]:
        """Yield names and datasets; groups may be nested, and hard links may form cycles."""
        waiting, seen = [("", file)], set()
        while waiting:
            prefix, group = waiting.pop()
            if group.id in seen:
                continue
            seen.add(group.id)
            for key in group:
                if key.startswith("#"):  # of MATLAB: what references point at
                    continue
                if not isinstance(group.get(key, getlink=True), self._h5py.HardLink):
                    continue
                value = group[key]
                if isinstance(value, self._h5py.Dataset):
                    yield prefix + key, value
                    if len(self.arrays) > MAX_ARRAYS:
                        return
                elif isinstance(value, self._h5py.Group):
                    waiting.append((f"{prefix}{key}/", value))

    def _listed(self, dataset: Any) -> Listed:
        shape, dtype = tuple(dataset.shape or ()), dataset.dtype
        if self._is_matlab_text(dataset):
            return Listed(shape[:1], np.dtype("U"))
        if self._h5py.check_string_dtype(dtype) is not None:
            return Listed(shape, np.dtype("U"))
        if dtype.hasobject or dtype.kind not in "fiubcSU":
            return Listed(shape, None)  # references, compounds and the like
        return Listed(shape[::-1] if self.matlab else shape, dtype)

    def _is_matlab_text(self, dataset: Any) -> bool:
        return self.matlab and dataset.attrs.get("MATLAB_class") in (b"char", "char")

    def read(self, name: str) -> Array:
        """Return a dataset."""
        with self._h5py.File(self.path, "r") as file:
            dataset = file[name]
            if _is_stored_elsewhere(dataset):
                raise _refused(self.path, name)
            if self._is_matlab_text(dataset):
                characters = np.asarray(dataset[()]).T.astype(np.uint32)
                rows = ["".join(map(chr, row)).rstrip() for row in np.atleast_2d(characters)]
                return np.asarray(rows)
            if self._h5py.check_string_dtype(dataset.dtype) is not None:
                return np.asarray(dataset.asstr()[()], dtype=str)
            values = np.asarray(dataset[()])
            return values.T if self.matlab else values


def _is_stored_elsewhere(dataset: Any) -> bool:
    """Return whether the values of a dataset may come from other files."""
    return dataset.external is not None or dataset.is_virtual


def _refused(path: Path, name: str) -> DamagedFileError:
    reason = f"{name!r} has its values elsewhere, by external storage, a virtual dataset or a link"
    return DamagedFileError(
        path.name, f"{reason}; only what is in the file itself is read", REFUSED
    )


def refuse_other_files(path: Path) -> None:
    """Raise an error if an HDF5 file refers to others, for libraries that would follow.

    Args:
        path: The file.

    Raises:
        DamagedFileError: If a link leads to another file, a dataset is stored in one, or is
            virtual.
    """
    h5py = require("h5py", "h5py", path.name)
    with damaged_as(path), h5py.File(path, "r") as file:
        waiting, seen = [("", file)], set()
        while waiting:
            prefix, group = waiting.pop()
            if group.id in seen:
                continue
            seen.add(group.id)
            for key in group:
                name, link = prefix + key, group.get(key, getlink=True)
                if isinstance(link, h5py.SoftLink):  # to what is listed elsewhere in the file
                    continue
                if not isinstance(link, h5py.HardLink):
                    raise _refused(path, name)
                value = group[key]
                if isinstance(value, h5py.Group):
                    waiting.append((f"{name}/", value))
                elif isinstance(value, h5py.Dataset) and _is_stored_elsewhere(value):
                    raise _refused(path, name)


def read_hdf5(path: Path, selection: Selection) -> Contents:
    """Return the contents of an HDF5 file; arrays are named by their paths."""
    return contents_of(path, Hdf5Store(path), selection)


class MatlabStore:
    """The variables of a MATLAB file up to version 7, and fields of structs as ``struct/field``.

    Fields of a struct are known only once it is read, which is refused if it takes too much memory.

    Args:
        path: The file.
        selection: How much memory the values may take.
    """

    def __init__(self, path: Path, selection: Selection) -> None:
        from scipy import io

        self.path, self._io = path, io
        self._fields: dict[str, Array] = {}
        with damaged_as(path):
            found = io.whosmat(path)
        self.arrays = {
            name: Listed(tuple(map(int, shape)), _matlab_dtype(kind)) for name, shape, kind in found
        }
        structs = [
            name for name, shape, kind in found if kind == "struct" and tuple(shape) == (1, 1)
        ]
        if structs:
            with damaged_as(path):
                largest = _largest_variable(path)
            check_memory(f"{path.name}: struct {structs[0]!r}", STRUCT_COPIES * largest, selection)
        for name in structs:
            with damaged_as(path):
                fields = dict(_fields_of(name, self._load(name)))
            self._fields |= fields
            self.arrays |= {
                field: Listed(values.shape, None if values.dtype.kind in "OV" else values.dtype)
                for field, values in fields.items()
            }

    def _load(self, name: str) -> Array:
        read = self._io.loadmat
        options = {"chars_as_strings": True, "mat_dtype": False}
        values: Array = read(self.path, variable_names=[name], **options)[name]
        return values

    def read(self, name: str) -> Array:
        """Return a variable; char arrays as one string for each row."""
        values = self._fields[name] if name in self._fields else self._load(name)
        if values.dtype.hasobject or values.dtype.names:
            raise DamagedFileError(
                self.path.name, f"{name!r} holds objects, which are not read", REFUSED
            )
        return np.char.rstrip(values) if values.dtype.kind == "U" else np.asarray(values)


def _fields_of(name: str, record: Array, depth: int = 1) -> Iterator[tuple[str, Array]]:
    """Yield the fields of a plain struct, and those of structs in it, by their paths."""
    for field in record.dtype.names or ():
        values = np.asarray(record[field].reshape(-1)[0])
        path = f"{name}/{field}"
        if values.dtype.names and values.size == 1 and depth < DEEPEST_STRUCT:
            yield from _fields_of(path, values, depth + 1)
        else:
            yield path, values


def _largest_variable(path: Path) -> int:
    """Return the bytes of the largest variable of a file of version 5 to 7, once decompressed."""
    largest = 0
    with path.open("rb") as file:
        head = file.read(128)
        order = "<" if head[126:128] == b"IM" else ">"
        while len(tag := file.read(8)) == 8:
            kind, size = struct.unpack(f"{order}II", tag)
            end = file.tell() + size
            if kind == COMPRESSED:
                tag = zlib.decompressobj().decompress(file.read(min(size, 256)), 8)
                largest = max(largest, struct.unpack(f"{order}II", tag)[1])
            largest = max(largest, size)
            file.seek(end)
    return largest


def _matlab_dtype(kind: str) -> np.dtype[Any] | None:
    if kind in ("double", "single", "logical") or kind.startswith(("int", "uint")):
        return np.dtype({"double": "f8", "single": "f4", "logical": "b1"}.get(kind, kind))
    return np.dtype("U") if kind == "char" else None


def read_matlab(path: Path, selection: Selection) -> Contents:
    """Return the contents of a MATLAB file of any version."""
    if is_hdf5(path):
        return contents_of(path, Hdf5Store(path, matlab=True), selection)
    return contents_of(path, MatlabStore(path, selection), selection)


def is_hdf5(path: Path) -> bool:
    """Return whether a file is HDF5, which may begin with a block of the user's (MATLAB)."""
    with path.open("rb") as file:
        head = file.read(512 + len(HDF5_MAGIC))
    return HDF5_MAGIC in (head[: len(HDF5_MAGIC)], head[512:])


# Neurodata Without Borders


def read_nwb(path: Path, selection: Selection) -> Contents:
    """Return a time series of an NWB file with its time stamps, in seconds.

    ``--array`` names the series, such as ``rates`` or ``processing/ecephys/rates``.
    """
    pynwb = require("pynwb", "pynwb", path.name)
    refuse_other_files(path)
    with damaged_as(path), pynwb.NWBHDF5IO(str(path), "r", load_namespaces=True) as io:
        series = {
            _nwb_name(one): one
            for one in io.read().objects.values()
            if isinstance(one, pynwb.TimeSeries) and np.ndim(one.data) >= 1
        }
        asked = selection.array or selection.optional.get("array")
        name = _choose(path, series, asked, "time series")
        chosen = series[name]
        listed_as = Listed(tuple(chosen.data.shape), np.dtype(chosen.data.dtype))
        check_memory(f"{path.name}: {name!r}", listed_as.n_bytes, selection)
        for role in ("session", "time"):
            if (given := getattr(selection, role)) is not None:
                raise ValueError(
                    f"{path.name}: --{role} is not for NWB files, whose series have time stamps, "
                    f"got {given!r}"
                )
        x = np.asarray(chosen.data[()])
        x = x[:, None] if x.ndim == 1 else x
        factor, offset = float(chosen.conversion), float(getattr(chosen, "offset", 0.0) or 0.0)
        if (factor, offset) != (1.0, 0.0):
            x = x * factor + offset
        if chosen.timestamps is not None:
            times = np.asarray(chosen.timestamps[()], dtype=float)
        else:
            times = float(chosen.starting_time or 0.0) + np.arange(len(x)) / float(chosen.rate)
    return Contents(x, times=times, notes=[f"read the time series {name!r} with its time stamps"])


def _nwb_name(series: Any) -> str:
    parts, one = [], series
    while one is not None and one.parent is not None:
        parts.append(str(one.name))
        one = one.parent
    return "/".join(reversed(parts))


def _choose(path: Path, found: Mapping[str, Any], asked: str | None, what: str) -> str:
    """Return the name of the one that is asked for, or of the only one."""
    if asked is not None:
        same = [name for name in found if name == asked or name.rpartition("/")[2] == asked]
        if len(same) == 1 or asked in found:
            return asked if asked in found else same[0]
        raise ValueError(f"{path.name}: {unknown_name(what, asked, '--array', [*found])}")
    if len(found) == 1:
        return next(iter(found))
    if not found:
        raise ValueError(f"{path.name}: has no {what}")
    raise ValueError(
        f"{path.name}: has {len(found)} {what}; choose one with --array: {listed([*found])}"
    )


# AnnData


def read_anndata(path: Path, selection: Selection) -> Contents:
    """Return X of an AnnData file, or the layer or the array of ``obsm`` that ``--array`` names.

    Session ids and times are columns of ``obs``; names of observations are kept as row ids.
    """
    anndata = require("anndata", "anndata", path.name)
    check_memory(path.name, path.stat().st_size, selection)
    refuse_other_files(path)
    with damaged_as(path):
        data = anndata.read_h5ad(path)
    selection = selection.resolve({*data.obs, *data.layers, *data.obsm})
    names: tuple[str, ...] | None = tuple(map(str, data.var_names))
    asked = selection.array
    if asked in (None, "X"):
        x = data.X
    elif asked in data.layers:
        x = data.layers[asked]
    elif asked in data.obsm:
        x, names = data.obsm[asked], None
    else:
        known = ["X", *data.layers, *data.obsm]
        raise ValueError(f"{path.name}: {unknown_name('array', str(asked), '--array', known)}")
    if x is None:
        raise ValueError(f"{path.name}: X is empty; choose an array with --array")
    check_memory(path.name, 8 * float(np.prod(x.shape)), selection)
    dense = np.asarray(x.toarray() if hasattr(x, "toarray") else x)
    faults: list[str] = []
    roles: dict[str, Array] = {}
    for role in ("session", "time"):
        if (name := getattr(selection, role)) is None:
            continue
        if name not in data.obs:
            faults.append(unknown_name("column of obs", name, f"--{role}", [*data.obs]))
        elif role == "session":
            values = np.asarray(data.obs[name].astype(object))
            roles[role] = ids_of(f"session column {name!r}", values, faults)
        else:
            roles[role] = np.asarray(data.obs[name])
    return Contents(
        dense,
        names=names,
        session=roles.get("session"),
        times=roles.get("time"),
        row_ids=np.asarray(data.obs_names, dtype=str),
        faults=faults,
    )


# Zarr and NetCDF


class ZarrStore:
    """The arrays of a Zarr directory, by their paths, if no codec of them can run code.

    Args:
        path: The directory.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        zarr = require("zarr", "zarr", path.name)
        with damaged_as(path):
            root = zarr.open(str(path), mode="r")
            found = [("", root)] if isinstance(root, zarr.Array) else [*_zarr_arrays(root)]
            self._arrays = {name or "x": array for name, array in found}
            for name, array in self._arrays.items():
                unknown = {*_codecs(array.metadata.to_dict())} - SAFE_CODECS
                if unknown:
                    raise DamagedFileError(
                        path.name,
                        f"{name!r} has codecs that may run code: {', '.join(sorted(unknown))}",
                        REFUSED,
                    )
            self.arrays = {name: _zarr_listed(array) for name, array in self._arrays.items()}

    def read(self, name: str) -> Array:
        """Return an array."""
        return np.asarray(self._arrays[name][...])

    @property
    def is_dataset(self) -> bool:
        """Whether xarray wrote it: its arrays name their dimensions."""
        return any(
            "_ARRAY_DIMENSIONS" in array.attrs
            or any(getattr(array.metadata, "dimension_names", None) or ())
            for array in self._arrays.values()
        )


def _zarr_arrays(root: Any) -> Iterator[tuple[str, Any]]:
    for count, (name, array) in enumerate(root.members(max_depth=None)):
        if hasattr(array, "shape"):
            yield str(name), array
        if count > MAX_ARRAYS:
            return


def _zarr_listed(array: Any) -> Listed:
    dtype = np.dtype(array.dtype)
    numeric = dtype.kind in "fiubU" or type(dtype).__name__ == "StringDType"
    return Listed(tuple(array.shape), dtype if numeric else None)


def _codecs(metadata: Any) -> Iterator[str]:
    """Yield the names of all codecs that the metadata of an array name."""
    for key in ("codecs", "filters", "compressor", "compressors", "index_codecs"):
        found = metadata.get(key)
        for codec in found if isinstance(found, list | tuple) else [found]:
            if codec is None:
                continue
            plain = codec if isinstance(codec, Mapping) else _config_of(codec)
            name = str(plain.get("id") or plain.get("name") or codec)
            yield name.removeprefix("numcodecs.")
            yield from _codecs(plain.get("configuration") or {})


def _config_of(codec: Any) -> Mapping[str, Any]:
    for name in ("to_dict", "get_config"):
        if hasattr(codec, name):
            found: Mapping[str, Any] = getattr(codec, name)()
            return found
    return {}


def read_zarr(path: Path, selection: Selection) -> Contents:
    """Return the contents of a Zarr directory; those that xarray wrote are read by xarray."""
    store = ZarrStore(path)
    if not store.is_dataset:
        return contents_of(path, store, selection)
    xarray = require("xarray", "xarray", path.name)
    with damaged_as(path), xarray.open_zarr(str(path), chunks=None) as dataset:
        return _contents_of_dataset(path, dataset, selection)


def read_netcdf(path: Path, selection: Selection) -> Contents:
    """Return the contents of a NetCDF file."""
    xarray = require("xarray", "xarray", path.name)
    engine = "scipy"
    if is_hdf5(path):
        require("h5netcdf", "h5netcdf", f"{path.name}, NetCDF of version 4,")
        refuse_other_files(path)
        engine = "h5netcdf"
    with damaged_as(path), xarray.open_dataset(path, engine=engine) as dataset:
        return _contents_of_dataset(path, dataset, selection)


class _DatasetStore:
    """The variables of a dataset of xarray, whose times are decoded."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self.arrays = {
            str(name): Listed(
                tuple(one.shape), one.dtype if one.dtype.kind in "fiubUM" else _text(one)
            )
            for name, one in dataset.variables.items()
        }

    def read(self, name: str) -> Array:
        values = np.asarray(self._dataset[name].values)
        return values.astype(str) if values.dtype.kind in "OS" else values


def _text(variable: Any) -> np.dtype[Any] | None:
    return np.dtype("U") if variable.dtype.kind == "S" else None


def _contents_of_dataset(path: Path, dataset: Any, selection: Selection) -> Contents:
    contents = contents_of(path, _DatasetStore(dataset), selection)
    if contents.x.ndim == 2 and not contents.faults:
        contents.names = _labels_of(dataset, contents.x.shape, selection)
    return contents


def _labels_of(
    dataset: Any, shape: tuple[int, ...], selection: Selection
) -> tuple[str, ...] | None:
    """Return the labels of the columns, if the observations have text as second coordinate."""
    candidates: Iterable[Any] = dataset.data_vars.values()
    if selection.array is not None:
        candidates = [dataset[selection.array]]
    for one in candidates:
        if one.shape == shape and one.dims[1] in one.coords:
            labels = one.coords[one.dims[1]].values
            if labels.dtype.kind in "UO":
                return tuple(map(str, labels))
    return None
