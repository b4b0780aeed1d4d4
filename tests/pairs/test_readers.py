"""Readers return the contents of a file, or an error that names the file and the fault."""

import io
import tracemalloc

import numpy as np
import pandas as pd
import pytest

from isolatent.pairs.readers import Selection, read_factors, read_observations, read_pairs

X = np.random.default_rng(0).normal(size=(20, 3))
NAMES = ("a", "b", "c")
CHUNK = "isolatent.pairs.readers.reading.CHUNK_VALUES"


def write(path, x, **others):
    """Write x in the format of the suffix."""
    if path.suffix == ".npy":
        np.save(path, x)
    elif path.suffix == ".npz":
        np.savez(path, x=x, **others)
    else:
        table = pd.DataFrame(x, columns=list(NAMES[: x.shape[1]])).assign(**others)
        save = table.to_csv if path.suffix == ".csv" else table.to_parquet
        save(path, index=False)
    return path


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".csv", ".parquet", ".NPY", ".CSV"])
def test_read_equals_written(tmp_path, suffix):
    path = write(tmp_path / f"x{suffix.lower()}", X).rename(tmp_path / f"y{suffix}")
    read = read_observations(path)
    np.testing.assert_array_equal(read.x, X)
    assert read.x_pos is read.groups is None
    assert read.names == (NAMES if suffix.lower() in (".csv", ".parquet") else None)


@pytest.mark.parametrize("suffix", [".npz", ".csv", ".parquet"])
@pytest.mark.parametrize("ids", [["one"] * 8 + ["two"] * 12, [3] * 8 + [7] * 12])
def test_session_ids_are_separated_from_observations(tmp_path, suffix, ids):
    path = write(tmp_path / f"x{suffix}", X, session=np.array(ids))
    read = read_observations(path, session="session")
    np.testing.assert_array_equal(read.x, X)
    assert [str(value) for value in read.groups] == [str(value) for value in ids]


def test_npz_with_pairs_and_other_arrays(tmp_path):
    path = write(tmp_path / "pairs.npz", X, x_pos=-X, z=X[:, :2], note=np.array("hello"))
    read = read_observations(path)
    np.testing.assert_array_equal(read.x_pos, -X)
    np.testing.assert_array_equal(read_factors(path).x, X[:, :2])


@pytest.mark.parametrize("groups", ["session", "groups", "mine"])
def test_npz_session_array_names(tmp_path, groups):
    path = write(tmp_path / "x.npz", X, **{groups: np.arange(20) // 5})
    read = read_observations(path, session="mine" if groups == "mine" else None)
    np.testing.assert_array_equal(read.groups, np.arange(20) // 5)


def test_columns_of_two_tables_are_matched_by_name(tmp_path):
    first = write(tmp_path / "a.csv", X, day="mon")
    second = tmp_path / "b.parquet"
    pd.DataFrame(-X, columns=NAMES)[["c", "a", "b"]].assign(day="mon").to_parquet(second)
    read = read_pairs(first, second, session="day")
    np.testing.assert_array_equal(read.x_pos, -X)
    assert read.names == NAMES
    assert read.groups is None


@pytest.mark.parametrize("suffix", [".npz", ".csv", ".parquet"])
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float16", "float32", ">f8"])
def test_numbers_become_native_floats(tmp_path, suffix, dtype):
    x = (X > 0).astype(dtype)
    if suffix == ".parquet" and dtype == ">f8":
        pytest.skip("parquet is little-endian only")
    read = read_observations(write(tmp_path / f"x{suffix}", x)).x
    assert read.dtype in (np.float32, np.float64)
    assert read.dtype.isnative
    np.testing.assert_array_equal(read, x.astype(float))


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "float32", ">f8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_is_memory_mapped(tmp_path, dtype, order):
    x = np.asarray(X > 0, dtype=dtype, order=order)
    read = read_observations(write(tmp_path / "x.npy", x)).x
    assert isinstance(read, np.memmap)
    np.testing.assert_array_equal(read, x)
    assert read.dtype.kind in "fiu"  # pair sources do not accept booleans


def test_checking_a_file_takes_less_memory_than_the_file(tmp_path):
    rows, columns = 1_000_000, 8
    path = tmp_path / "large.npy"
    large = np.lib.format.open_memmap(path, "w+", dtype=np.float32, shape=(rows, columns))
    large[::2] = 1
    large.flush()
    del large
    tracemalloc.start()
    read_observations(path)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < rows * columns * 4


@pytest.mark.parametrize("suffix", [".npy", ".csv"])
@pytest.mark.parametrize("row", [0, 7, 19])
def test_every_chunk_is_searched_for_infinity(tmp_path, monkeypatch, suffix, row):
    monkeypatch.setattr(CHUNK, 9)  # three rows
    x = X.copy()
    x[row, 1] = np.inf
    line, label = ("", "1") if suffix == ".npy" else (rf" \(line {row + 2}\)", "'b'")
    message = rf"x{suffix}: must be finite, got inf in row {row}{line}, column {label}$"
    with pytest.raises(ValueError, match=message):
        read_observations(write(tmp_path / f"x{suffix}", x))


@pytest.mark.parametrize("suffix", [".npy", ".csv", ".parquet", ".npz"])
@pytest.mark.parametrize("row", [0, 7, 19])
def test_missing_values_stay_in_a_series_and_are_counted(tmp_path, monkeypatch, suffix, row):
    monkeypatch.setattr(CHUNK, 9)
    x = X.copy()
    x[row, 1] = np.nan
    read = read_observations(write(tmp_path / f"x{suffix}", x))
    np.testing.assert_array_equal(read.x, x)
    assert not isinstance(read.x, np.memmap)  # which training does not search for NaN
    line = f" (line {row + 2})" if suffix == ".csv" else ""
    left_out = f"1 of 20 rows have missing values and are left out of pairs: row {row}{line}"
    assert (read.notes, read.n_incomplete) == ((left_out,), 1)


@pytest.mark.parametrize("suffix", [".npy", ".csv"])
def test_incomplete_rows_are_left_out_of_pairs(tmp_path, suffix):
    x, x_pos = X.copy(), -X
    x[3, 0] = x_pos[5, 1] = np.nan
    paths = write(tmp_path / f"a{suffix}", x), write(tmp_path / f"b{suffix}", x_pos)
    read = read_pairs(*paths)
    kept = np.delete(np.arange(20), [3, 5])
    np.testing.assert_array_equal(read.rows, kept)
    np.testing.assert_array_equal(read.x, X[kept])
    np.testing.assert_array_equal(read.x_pos, -X[kept])


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".csv"])
def test_constant_columns_are_left_out_with_a_line(tmp_path, monkeypatch, suffix):
    monkeypatch.setattr(CHUNK, 9)
    x = X.copy()
    x[:, 1:] = 5.0
    x[-1, 2] = 6.0
    x[[0, 9], 1] = np.nan  # what is there does not vary
    read = read_observations(write(tmp_path / f"x{suffix}", x))
    np.testing.assert_array_equal(read.x, x[:, [0, 2]])
    label = "'b'" if suffix == ".csv" else "1"
    assert read.notes[0] == f"column {label} is constant, and left out"
    assert read.names == (("a", "c") if suffix == ".csv" else ("0", "2"))
    assert read_observations(tmp_path / f"x{suffix}", varying=False).x.shape == (20, 3)


def test_one_row_is_enough_if_columns_need_not_vary(tmp_path):
    path = write(tmp_path / "x.npy", X[:1])
    assert read_observations(path, varying=False).x.shape == (1, 3)
    with pytest.raises(ValueError, match="at least 2 rows, got 1"):
        read_observations(path)


def as_npy(array):
    buffer = io.BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


def as_npz(**arrays):
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


BAD = [
    ("x.xls", b"1 2", None, "must end in one of .npy, .npz, .csv, .tsv, .txt, .parquet, .h5"),
    ("x.npy", b"", None, "is damaged: it does not begin as .npy files do"),
    ("x.npy", b"hello", None, "is damaged: it does not begin as .npy files do"),
    ("x.npy", as_npy(X)[:-8], None, "is damaged: mmap length is greater than file size"),
    ("x.npy", as_npy(np.array([[None, 1]])), None, "got Python objects, which are never unpickled"),
    ("x.npy", as_npz(x=X), None, "is an archive of arrays; rename it to .npz"),
    ("x.npy", as_npy(X[:, 0]), None, "must have shape (rows, columns), got shape (20,)"),
    ("x.npy", as_npy(X[None, None]), None, "must have shape (rows, columns), got shape (1, 1, 20"),
    ("x.npy", as_npy(X[:, :0]), None, "must have shape (rows, columns), got shape (20, 0)"),
    ("x.npy", as_npy(X[:0]), None, "must have at least 2 rows, got 0"),
    ("x.npy", as_npy(X * 1j), None, "must hold real numbers, got dtype complex128"),
    ("x.npy", as_npy(X.astype(str)), None, "must hold real numbers, got dtype <U"),
    ("x.npy", as_npy(X), "day", "an .npy has no names"),
    (
        "x.npy",
        as_npy(np.ones((5, 12))),
        None,
        "columns 0, 1, 2, 3, 4, 5, 6, 7 and 4 more are constant: none varies",
    ),
    ("x.npz", b"PK\x03\x04junk", None, "is damaged: File is not a zip file"),
    ("x.npz", as_npy(X), None, "it is a single array: rename it to .npy"),
    ("x.npz", as_npz(y=X, u=X), None, "has no array 'x'; choose one with --array"),
    ("x.npz", as_npz(y=X, u=X), None, "it has 'y' (20, 3), 'u' (20, 3)"),
    ("x.npz", as_npz(y=X[0], z=X), None, "has no array 'x'; it has 'y', 'z'"),
    ("x.npz", as_npz(x=X), "day", "has no array 'day' for --session; it has 'x'"),
    ("x.npz", as_npz(x=X, Day=X), "day", "did you mean 'Day'? it has 'x', 'Day'"),
    ("x.npz", as_npz(x=X, x_pos=X[1:]), None, "x has 20 rows and x.npz: x_pos has 19"),
    ("x.npz", as_npz(x=X, x_pos=X[:, 1:]), None, "x has 3 columns and x.npz: x_pos has 2"),
    ("x.npz", as_npz(x=X, x_pos=X * np.nan), None, "0 of 20 rows are complete"),
    ("x.npz", as_npz(x=X, x_pos=X, session=np.ones(20)), None, "both x_pos and sessions"),
    ("x.npz", as_npz(x=X, session=np.ones(19)), None, "one id for each of the 20 rows"),
    ("x.npz", as_npz(x=X, session=np.full(20, np.nan)), None, "has no value in rows 0, 1, 2, 3, 4"),
    ("x.csv", b"", None, "is damaged: it is empty"),
    ("x.csv", b"a,b\n", None, "must have at least 2 rows, got 0"),
    ("x.csv", b"a,b\n1,2\n3\n", None, "the header has 2 columns, but line 3 has 1"),
    (
        "x.csv",
        b"a,b\n1,2\n3,oops\n",
        None,
        "holds text ('oops'), not numbers in row 1 (line 3)",
    ),
    ("x.csv", b"a,b\n1,x\n3,y\n", None, "or pass it as --session b if it holds session ids"),
    ("x.csv", b"a,b\n1,2020-01-01\n3,2020-01-02\n", None, "column 'b' holds dates or times"),
    ("x.csv", b"a,b\n1,2\n3,\n4,5\n,6\n", None, None),
    ("x.csv", b"a,b\n1,2\n3,\n", None, "1 of 2 rows are complete"),
    ("x.csv", b"a,b\n1,\n3,\n", None, "0 of 2 rows are complete"),
    ("x.csv", b"a,b\n1,1e999\n3,4\n", None, "got inf in row 0 (line 2), column 'b'"),
    ("x.csv", b"a,b\n7,7\n7,7\n", None, "columns 'a', 'b' are constant: none varies"),
    ("x.csv", b"a,a\n1,7\n3,8\n", None, "more than one column 'a'"),
    ("x.csv", b",a\n0,1\n1,5\n", None, "column 0 has no name and looks like the index of a"),
    ("x.csv", b"1.5,2\n3,4\n5,6\n", None, "the names of the columns, got numbers: '1.5', '2'"),
    ("x.csv", b"a,b\n1,2\n3,4\n", "day", "has no column 'day' for --session"),
    ("x.csv", b"a,b\n1,2\n3,4\n", "day", "it has 'a', 'b'"),
    ("x.csv", b"a,Trial\n1,2\n3,4\n", "trial", "did you mean 'Trial'? it has 'a', 'Trial'"),
    ("x.csv", b"a,day\n1,m\n3,\n", "day", "column 'day' has no value in row 1 (line 3)"),
    ("x.csv", b"day\nm\nn\n", "day", "must have shape (rows, columns), got shape (2, 0)"),
    ("x.csv", "a,b\n1,é\n2,é\n".encode("latin1"), None, "column 'b' holds text ('é')"),
    ("x.parquet", b"a,b\n1,2\n", None, "is damaged: "),
]


@pytest.mark.parametrize(("name", "content", "session", "message"), BAD)
def test_errors_name_file_and_fault_in_one_line(tmp_path, name, content, session, message):
    path = tmp_path / name
    path.write_bytes(content)
    if message is None:
        assert read_observations(path, session).n_incomplete == 2
        return
    with pytest.raises(ValueError, match=name.replace(".", r"\.")) as raised:
        read_observations(path, session)
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)
    assert path.read_bytes() == content


def test_missing_files_and_directories_are_errors(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no\.npy: does not exist"):
        read_observations(tmp_path / "no.npy")
    (tmp_path / "folder.npy").mkdir()
    with pytest.raises(IsADirectoryError, match="is a directory"):
        read_observations(tmp_path / "folder.npy")


def test_default_column_names_of_pandas_are_a_header(tmp_path):
    """pandas writes the names 0, 1, 2 for columns without names."""
    path = tmp_path / "x.csv"
    pd.DataFrame(X).to_csv(path, index=False)
    np.testing.assert_array_equal(read_observations(path).x, X)


def test_an_index_of_pandas_is_an_error(tmp_path):
    path = tmp_path / "x.parquet"
    pd.DataFrame(X, columns=NAMES, index=np.arange(20) * 3).to_parquet(path)
    with pytest.raises(ValueError, match="looks like the index of a pandas DataFrame"):
        read_observations(path)


def test_two_files_must_match(tmp_path):
    first = write(tmp_path / "a.npy", X)
    second = write(tmp_path / "b.npy", X[1:])
    with pytest.raises(ValueError, match=r"a\.npy has 20 rows and b\.npy has 19"):
        read_pairs(first, second)
    with pytest.raises(ValueError, match=r"b\.npz: holds x_pos already"):
        read_pairs(first, write(tmp_path / "b.npz", X, x_pos=X))
    other = tmp_path / "b.csv"
    pd.DataFrame(X, columns=["a", "b", "d"]).to_csv(other, index=False)
    with pytest.raises(ValueError, match="lacks 'c', has also 'd'"):
        read_pairs(write(tmp_path / "a.csv", X), other)


def test_a_single_factor_may_be_one_dimensional(tmp_path):
    assert read_factors(write(tmp_path / "z.npy", X[:, 0])).x.shape == (20, 1)
    with pytest.raises(ValueError, match="has no array 'z'; it has 'x'"):
        read_factors(write(tmp_path / "z.npz", X))


def test_factors_are_numbers_or_an_error(tmp_path):
    """Text must never become zeros."""
    path = tmp_path / "z.csv"
    pd.DataFrame(X[:, :2], columns=["z1", "z2"]).assign(kind="a").to_csv(path, index=False)
    message = r"column 'kind' holds text \('a'\), not numbers; choose .* --truth-columns"
    with pytest.raises(ValueError, match=message):
        read_factors(path)
    chosen = read_factors(path, Selection(columns=["z2", "z1"]))
    np.testing.assert_allclose(chosen.x, X[:, [1, 0]])
    assert chosen.names == ("z2", "z1")


def test_times_and_row_numbers_are_no_factors(tmp_path):
    path = tmp_path / "z.csv"
    table = pd.DataFrame(X[:, :2], columns=["z1", "z2"])
    table.insert(0, "time", np.arange(len(X)) / 50)
    table.insert(1, "t", np.arange(len(X)) * 2)
    table.to_csv(path, index=False)
    found = read_factors(path, Selection(optional={"time": "t"}))
    assert found.names == ("z1", "z2")
    assert any("not taken as factors: 'time'" in note for note in found.notes)
    everything = read_factors(path, Selection(columns=["time", "z*"]))
    assert everything.names == ("time", "z1", "z2")
