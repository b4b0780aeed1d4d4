"""Each format of laboratories: written by its own library, read back equal, never unpickled."""

import io
import json
import pickle
import subprocess
import sys
import zipfile
from datetime import UTC, datetime

import h5py
import numpy as np
import pandas as pd
import pytest
from scipy import io as scipy_io

from isolatent.files import DamagedFileError
from isolatent.pairs.readers import Selection, read_observations

RNG = np.random.default_rng(0)
X = RNG.normal(size=(20, 3))
TRIALS = RNG.normal(size=(4, 5, 3))
SESSION = np.arange(20) // 10
TIME = np.arange(20) / 50 + 3
CELLS = pd.Index([f"cell{k}" for k in range(20)], dtype=object)


def read(path, **chosen):
    return read_observations(path, selection=Selection(**chosen))


# Writing, by the library of each format


def write_hdf5(path, **arrays):
    with h5py.File(path, "w") as file:
        for name, values in arrays.items():
            file[name] = values


def write_matlab(path, **arrays):
    scipy_io.savemat(path, arrays)


def write_matlab73(path, **arrays):
    """MATLAB itself is not here: the layout that it documents, written by h5py."""
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, values in arrays.items():
            values = np.asarray(values)
            if values.ndim == 1:
                values = values[:, None]  # MATLAB has matrices only
            if values.dtype.kind == "U":
                codes = np.array([[ord(c) for c in text] for text in values[:, 0]], np.uint16)
                file[name] = codes.T
                file[name].attrs["MATLAB_class"] = np.bytes_("char")
            else:
                file[name] = values.T
                file[name].attrs["MATLAB_class"] = np.bytes_("double")
    with path.open("r+b") as raw:
        raw.write(b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM")


def write_zarr(path, **arrays):
    import zarr

    group = zarr.open_group(str(path), mode="w")
    for name, values in arrays.items():
        group.create_array(name, data=np.asarray(values))


def write_zarr2(path, **arrays):
    import zarr

    group = zarr.open_group(str(path), mode="w", zarr_format=2)
    for name, values in arrays.items():
        group.create_array(name, data=np.asarray(values))


def write_dataset(path, x, session=None, time=None):
    import xarray as xr

    dims = ("time", "channel") if x.ndim == 2 else ("trial", "time", "channel")
    data = xr.Dataset({"x": (dims, x)}, coords={"channel": ["a", "b", "c"]})
    if time is not None:
        start = np.datetime64("2026-03-29T01:00:00", "ns")
        data = data.assign_coords(time=start + (time * 1e9).astype("timedelta64[ns]"))
    if session is not None:
        data["session"] = ("time", session)
    return data


def write_netcdf4(path, x, session=None, time=None):
    write_dataset(path, x, session, time).to_netcdf(path, engine="h5netcdf")


def write_netcdf(path, x, session=None, time=None):
    write_dataset(path, x, session, time).to_netcdf(path, engine="scipy")


def write_anndata(path, x):
    import anndata

    names = pd.DataFrame(index=pd.Index([*"uvw"], dtype=object))
    anndata.AnnData(x, obs=pd.DataFrame(index=CELLS), var=names).write_h5ad(path)


def write_nwb(path, x):
    import pynwb

    file = pynwb.NWBFile("a session", "id", datetime(2026, 3, 29, tzinfo=UTC))
    file.add_acquisition(pynwb.TimeSeries(name="rates", data=x, unit="Hz", timestamps=TIME))
    with pynwb.NWBHDF5IO(str(path), "w") as out:
        out.write(file)


def write_xarray_zarr(path, x, session=None, time=None):
    write_dataset(path, x, session, time).to_zarr(path)


WRITERS = {
    "hdf5": ("x.h5", write_hdf5),
    "matlab 5": ("x.mat", write_matlab),
    "matlab 7.3": ("x.mat", write_matlab73),
    "zarr 3": ("x.zarr", write_zarr),
    "zarr 2": ("x.zarr", write_zarr2),
    "netcdf": ("x.nc", write_netcdf),
    "netcdf4": ("x.nc", write_netcdf4),
    "xarray": ("x.zarr", write_xarray_zarr),
}
FORMATS = pytest.mark.parametrize(("name", "write"), WRITERS.values(), ids=WRITERS)


@FORMATS
def test_read_equals_written(tmp_path, name, write):
    write(tmp_path / name, x=X, session=SESSION, time=TIME)
    found = read(tmp_path / name, session="session", time="time")
    np.testing.assert_array_equal(found.x, X)
    np.testing.assert_array_equal(found.groups, SESSION)
    seconds = found.times
    if seconds.dtype.kind == "M":
        assert str(seconds[0]).startswith("2026-03-29T01:00:03")
        seconds = (seconds - seconds[0]) / np.timedelta64(1, "s") + TIME[0]
    np.testing.assert_allclose(seconds, TIME)


@FORMATS
def test_trials_are_sessions(tmp_path, name, write):
    write(tmp_path / name, x=TRIALS)
    found = read(tmp_path / name)
    np.testing.assert_array_equal(found.x, TRIALS.reshape(20, 3))
    np.testing.assert_array_equal(found.groups, np.repeat(np.arange(4), 5))
    assert "4 trials of 5 rows are a session each" in found.notes


@FORMATS
def test_sizes_are_compared_with_memory_before_reading(tmp_path, name, write):
    write(tmp_path / name, x=X)
    with pytest.raises(ValueError, match=r"more than --max-memory 100\.0 B"):
        read(tmp_path / name, max_memory=100)


@pytest.mark.parametrize(("name", "write"), [*WRITERS.values()][:5], ids=[*WRITERS][:5])
def test_arrays_are_chosen_by_name(tmp_path, name, write):
    write(tmp_path / name, rates=X, spikes=2 * X, left=X[:, 0])
    with pytest.raises(ValueError, match="choose one with --array"):
        read(tmp_path / name)
    np.testing.assert_array_equal(read(tmp_path / name, array="spikes").x, 2 * X)
    chosen = read(tmp_path / name, array="spikes", columns=["0", "2"])
    np.testing.assert_array_equal(chosen.x, 2 * X[:, [0, 2]])
    with pytest.raises(ValueError, match="no array 'Rates' for --array; did you mean 'rates'"):
        read(tmp_path / name, array="Rates")


@pytest.mark.parametrize(
    ("name", "write"), [*WRITERS.values()][:3], ids=["hdf5", "matlab 5", "matlab 7.3"]
)
def test_session_ids_may_be_text(tmp_path, name, write):
    ids = np.array(["mon", "tue"]).repeat(10)
    write(tmp_path / name, x=X, day=ids.astype("S3") if write is write_hdf5 else ids[:, None])
    if write is write_matlab:
        write(tmp_path / name, x=X, day=ids)
    assert read(tmp_path / name, session="day").groups.tolist() == ids.tolist()


def test_arrays_in_groups_of_hdf5_have_paths(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["run/rates"], file["run/time"] = X, TIME
        file["loop"] = h5py.SoftLink("/")  # a cycle
    found = read(tmp_path / "x.h5", time="time")
    np.testing.assert_array_equal(found.x, X)
    np.testing.assert_array_equal(found.times, TIME)
    assert found.notes == ("read the array 'run/rates'",)


def store_elsewhere(path, way, replaced="x"):
    """Let a dataset take its values from another file that the reader can open."""
    folder = path.parent / "elsewhere"
    folder.mkdir()
    X.tofile(folder / "x.raw")
    write_hdf5(folder / "x.h5", x=X)
    with h5py.File(path, "a") as file:
        file.pop(replaced, None)
        if way == "external":
            external = [(str(folder / "x.raw"), 0, X.nbytes)]
            file.create_dataset(replaced, X.shape, X.dtype, external=external)
        elif way == "virtual":
            layout = h5py.VirtualLayout(X.shape, X.dtype)
            layout[:] = h5py.VirtualSource(str(folder / "x.h5"), "x", X.shape)
            file.create_virtual_dataset(replaced, layout)
        else:
            file[replaced] = h5py.ExternalLink(str(folder / "x.h5"), "x")
        assert np.array_equal(file[replaced][()], X)


@pytest.mark.parametrize("way", ["external", "virtual"])
@pytest.mark.parametrize("name", ["x.h5", "x.mat"])
def test_arrays_that_are_stored_in_other_files_are_refused(tmp_path, name, way):
    write_hdf5(tmp_path / name, y=X)
    store_elsewhere(tmp_path / name, way)
    with pytest.raises(DamagedFileError, match=f"{name} is refused: 'x' has its values elsewhere"):
        read(tmp_path / name, array="x")
    assert read(tmp_path / name, array="y").x.size == X.size  # the others are read


@pytest.mark.parametrize("way", ["external", "virtual", "link"])
@pytest.mark.parametrize(
    ("name", "write"),
    [("x.h5ad", write_anndata), ("x.nwb", write_nwb), ("x.nc", write_netcdf4)],
)
def test_files_that_refer_to_others_are_refused(tmp_path, name, write, way):
    write(tmp_path / name, X)
    assert np.array_equal(read(tmp_path / name).x, X)
    store_elsewhere(tmp_path / name, way, "other")
    with pytest.raises(DamagedFileError, match=f"{name} is refused: 'other' has its values else"):
        read(tmp_path / name)


def test_netcdf_and_xarray_name_the_columns(tmp_path):
    write_netcdf(tmp_path / "x.nc", X)
    write_xarray_zarr(tmp_path / "x.zarr", X)
    for name in ("x.nc", "x.zarr"):
        found = read(tmp_path / name, columns=["c", "a"])
        np.testing.assert_array_equal(found.x, X[:, [2, 0]])
        assert found.names == ("c", "a")


@pytest.mark.parametrize("sparse", [False, True])
def test_anndata(tmp_path, sparse):
    import anndata
    from scipy.sparse import csr_matrix

    obs = pd.DataFrame(
        {"batch": pd.Series(["one"] * 10 + ["two"] * 10, CELLS, dtype=object), "t": TIME},
        index=CELLS,
    )
    data = anndata.AnnData(
        csr_matrix(X) if sparse else X,
        obs=obs,
        var=pd.DataFrame(index=pd.Index([*"uvw"], dtype=object)),
    )
    data.layers["raw"], data.obsm["X_pca"] = 2 * X, X[:, :2]
    data.write_h5ad(tmp_path / "x.h5ad")
    found = read(tmp_path / "x.h5ad", session="batch", time="t")
    np.testing.assert_array_equal(found.x, X)
    assert found.names == ("u", "v", "w")
    assert found.groups.tolist() == [*obs.batch]
    assert found.row_ids.tolist() == [*obs.index]
    np.testing.assert_array_equal(found.times, TIME)
    np.testing.assert_array_equal(read(tmp_path / "x.h5ad", array="raw").x, 2 * X)
    np.testing.assert_array_equal(read(tmp_path / "x.h5ad", array="X_pca").x, X[:, :2])
    with pytest.raises(ValueError, match="did you mean 'batch'"):
        read(tmp_path / "x.h5ad", session="Batch")


@pytest.mark.parametrize("regular", [False, True])
def test_nwb(tmp_path, regular):
    import pynwb

    start = datetime(2026, 3, 29, tzinfo=UTC)
    file = pynwb.NWBFile("a session", "id", start)
    when = {"starting_time": 3.0, "rate": 50.0} if regular else {"timestamps": TIME}
    file.add_acquisition(pynwb.TimeSeries("rates", X, "Hz", conversion=2.0, **when))
    path = tmp_path / "x.nwb"
    with pynwb.NWBHDF5IO(str(path), "w") as out:
        out.write(file)
    found = read(path)
    np.testing.assert_array_equal(found.x, 2 * X)
    np.testing.assert_allclose(found.times, TIME)
    np.testing.assert_array_equal(read(path, array="rates").x, found.x)
    with pytest.raises(ValueError, match="no time series 'rate' for --array; did you mean"):
        read(path, array="rate")


# Missing libraries


@pytest.mark.parametrize(
    ("name", "module"),
    [
        *(("x.h5", "h5py"), ("x.nwb", "pynwb"), ("x.h5ad", "anndata"), ("x.zarr", "zarr")),
        *(("x.nc", "xarray"),),
    ],
)
def test_a_missing_library_gives_the_line_of_pip(tmp_path, monkeypatch, name, module):
    monkeypatch.setitem(sys.modules, module, None)
    (tmp_path / name).write_bytes(b"CDF\x01")
    message = rf"{name} needs {module}: pip install {module}, or pip install 'isolatent\[io\]'"
    with pytest.raises(ImportError, match=message):
        read(tmp_path / name)


# Attacks


class Payload:
    """Leaves a mark where it is unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return (open, (str(self.mark), "w"))


def attack_npy(path, payload):
    np.save(path, np.array([[payload, 1]], dtype=object), allow_pickle=True)


def attack_npz(path, payload):
    np.savez(path, x=np.array([[payload, 1]], dtype=object), session=np.zeros(1))


def attack_hdf5(path, payload):
    with h5py.File(path, "w") as file:
        file["x"] = np.void(pickle.dumps(payload))
        file["session"] = np.array([file["x"].ref], dtype=h5py.ref_dtype)


def attack_matlab(path, payload):
    cell = np.empty((2, 2), dtype=object)
    cell[:] = [["a", "b"], ["c", "d"]]
    scipy_io.savemat(path, {"x": cell, "y": {"field": np.frombuffer(pickle.dumps(payload), "u1")}})


def attack_zarr(path, payload, codec="pickle", where="filters"):
    """A Zarr array of numbers whose chunks are said to be pickled."""
    folder = path / "x"
    folder.mkdir(parents=True)
    (path / ".zgroup").write_text('{"zarr_format": 2}')
    described = {
        "zarr_format": 2,
        "shape": [2, 2],
        "chunks": [2, 2],
        "dtype": "<f8",
        "fill_value": 0,
        "order": "C",
        "compressor": None,
        "filters": None,
    }
    described[where] = [{"id": codec}] if where == "filters" else {"id": codec}
    (folder / ".zarray").write_text(json.dumps(described))
    (folder / "0.0").write_bytes(pickle.dumps(payload))


def attack_dataset(path, payload):
    """The same, as xarray would write it, which reads coordinates when it opens."""
    attack_zarr(path, payload)
    (path / "x" / ".zattrs").write_text('{"_ARRAY_DIMENSIONS": ["x", "y"]}')


@pytest.mark.parametrize(
    ("name", "attack"),
    [
        ("x.npy", attack_npy),
        ("x.npz", attack_npz),
        ("x.h5", attack_hdf5),
        ("x.mat", attack_matlab),
        ("x.zarr", attack_zarr),
        ("x.zarr", attack_dataset),
    ],
)
@pytest.mark.parametrize("session", [None, "session"])
def test_nothing_is_unpickled(tmp_path, name, attack, session):
    mark = tmp_path / "mark"
    attack(tmp_path / name, Payload(mark))
    with pytest.raises(ValueError, match=name.partition(".")[0]) as raised:
        read(tmp_path / name, session=None if name == "x.npy" else session)
    assert not mark.exists()
    assert "\n" not in str(raised.value) or "problems" in str(raised.value)


def test_codecs_that_are_not_known_are_refused(tmp_path):
    """Releases of zarr differ in which codecs they decode; ours are those on a list."""
    import zarr
    from numcodecs import Base64

    options = {"zarr_format": 2, "filters": [Base64()], "compressors": None}
    group = zarr.open_group(str(tmp_path / "x.zarr"), mode="w", zarr_format=2)
    group.create_array("x", data=X, **{k: v for k, v in options.items() if k != "zarr_format"})
    with pytest.raises(ValueError, match=r"is refused: .x. has codecs that may run code: base64"):
        read(tmp_path / "x.zarr")


@pytest.mark.parametrize("claimed", [(10**6, 1000), (10**9, 10**9)])
def test_headers_of_npz_are_compared_with_memory_and_file(tmp_path, claimed):
    path = tmp_path / "x.npz"
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        header, {"descr": "<f8", "fortran_order": False, "shape": claimed}
    )
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x.npy", header.getvalue() + b"\0" * 64)
    with pytest.raises(ValueError, match=r"is damaged: the size of x\.npy is not that of an array"):
        read(path)


def test_an_archive_that_expands_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "x.npz"
    np.savez_compressed(path, x=np.zeros((1000, 1000)))
    assert path.stat().st_size < 20_000
    with pytest.raises(ValueError, match=r"would take 8\.0 MB of memory, more than --max-memory"):
        read(path, max_memory=4e6)


BYTES = {
    "x.npy": lambda path: np.save(path, X),
    "x.npz": lambda path: np.savez(path, x=X, session=SESSION),
    "x.csv": lambda path: pd.DataFrame(X).to_csv(path, index=False),
    "x.parquet": lambda path: pd.DataFrame(X, columns=[*"abc"]).to_parquet(path, index=False),
    "x.h5": lambda path: write_hdf5(path, x=X, session=SESSION),
    "x.mat": lambda path: write_matlab(path, x=X, session=SESSION),
    "x.nc": lambda path: write_netcdf(path, X),
}


@pytest.mark.parametrize("name", BYTES)
def test_damaged_files_give_a_message(tmp_path, name):
    """Cut off, overwritten, or with single bytes changed: a ValueError that names the file."""
    path, rng = tmp_path / name, np.random.default_rng(0)
    BYTES[name](path)
    whole, messages = path.read_bytes(), []
    for case in range(24):
        content = bytearray(whole)
        if case % 3 == 0:
            content = content[: rng.integers(len(content))]
        elif case % 3 == 1:
            for at in rng.integers(len(content), size=8):
                content[at] = rng.integers(256)
        else:
            at = rng.integers(max(1, len(content) - 64))
            content[at : at + 64] = rng.bytes(64)
        path.write_bytes(bytes(content))
        try:
            read(path)
        except (ValueError, ImportError) as error:
            messages.append(str(error))
    assert all(path.name in message for message in messages), messages
    assert messages


def test_a_truncated_memory_map_is_an_error_and_no_signal(tmp_path):
    """Reading the lost pages would end the process by SIGBUS."""
    code = f"""
import numpy as np, os, torch
from isolatent.pairs import ArrayPairs
path = {str(tmp_path / "x.npy")!r}
np.save(path, np.zeros((200_000, 4)))
x = np.load(path, mmap_mode="r")
pairs = ArrayPairs(x, x)
os.truncate(path, 4096)
try:
    pairs.sample(64, torch.Generator().manual_seed(0))
except ValueError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "x.npy is damaged: it has 4096 bytes where 6400128 were mapped" in done.stdout


@pytest.mark.parametrize("compressed", [False, True])
def test_fields_of_matlab_structs_are_arrays(tmp_path, compressed):
    """A struct within a struct, too; cells and tables in it are not read."""
    path = tmp_path / "x.mat"
    cells = np.empty(2, dtype=object)
    cells[:] = ["a", "b"]
    record = {"x": X, "deep": {"y": X[:, :2], "name": "probe"}, "cells": cells}
    scipy_io.savemat(path, {"st": record, "other": X[:, :2]}, do_compression=compressed)
    np.testing.assert_array_equal(read(path, array="st/x").x, X)
    np.testing.assert_array_equal(read(path, array="st/deep/y").x, X[:, :2])
    with pytest.raises(ValueError, match=r"choose one with --array.*'st/x' .20, 3."):
        read(path)
    with pytest.raises(ValueError, match="'st/cells' holds objects"):
        read(path, array="st/cells")
    with pytest.raises(ValueError, match="more than --max-memory"):
        read(path, array="st/x", max_memory=500)
    scipy_io.savemat(path, {"st": {"x": X}}, do_compression=compressed)
    np.testing.assert_array_equal(read(path).x, X)  # the only array


def test_a_struct_that_expands_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "x.mat"
    scipy_io.savemat(path, {"st": {"x": np.zeros((4000, 1000))}}, do_compression=True)
    assert path.stat().st_size < 1e6
    with pytest.raises(ValueError, match=r"struct 'st' would take .* than --max-memory 1\.0 MB"):
        read(path, array="st/x", max_memory=1e6)


@pytest.mark.parametrize("suffix", [".h5", ".npy", ".npz", ".mat"])
def test_channels_by_times_are_transposed_on_request(tmp_path, suffix):
    path = tmp_path / f"x{suffix}"
    write = {
        ".h5": lambda: write_hdf5(path, x=X.T),
        ".npy": lambda: np.save(path, X.T),
        ".npz": lambda: np.savez(path, x=X.T),
        ".mat": lambda: scipy_io.savemat(path, {"x": X.T}),
    }[suffix]
    write()
    found = read(path, transpose=True)
    np.testing.assert_array_equal(found.x, X)
    assert not any("--transpose" in note for note in found.notes)
    notes = read(path).notes
    assert any("3 rows and 20 columns: --transpose" in note for note in notes)
