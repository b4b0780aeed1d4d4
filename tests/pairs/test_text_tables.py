"""Tables as people have them: dialects, chosen columns, times, and all problems at once."""

import time

import numpy as np
import pandas as pd
import pytest

from isolatent.pairs.readers import Selection, read_observations
from isolatent.pairs.readers.text_tables import sniff_dialect

X = np.random.default_rng(0).normal(size=(30, 3)).round(6)
TABLE = pd.DataFrame(X, columns=["left", "right", "up"])


def read(path, **chosen):
    return read_observations(path, selection=Selection(**chosen))


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".txt"])
@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize("decimal", [".", ","])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "cp1252"])
def test_every_dialect_gives_the_same_values(tmp_path, suffix, separator, decimal, encoding):
    if decimal == separator:
        pytest.skip("no table can be written so")
    path = tmp_path / f"x{suffix}"
    table = TABLE.rename(columns={"up": "höhe"})
    table.to_csv(path, sep=separator, decimal=decimal, encoding=encoding, index=False)
    found = read(path)
    np.testing.assert_array_equal(found.x, X)
    assert found.names == ("left", "right", "höhe")
    notes = " ".join(found.notes)
    assert ("semicolons" in notes) == (separator == ";")
    assert ("decimal commas" in notes) == (decimal == ",")


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "a\n1\n", "a;b\n1.5;2\n", '"a;b",c\n1,2\n'])
def test_a_point_is_the_decimal_sign_unless_cells_say_otherwise(text):
    assert sniff_dialect(text.encode()).decimal == "."


@pytest.mark.parametrize(
    ("decimal", "text"), [(",", "1.234"), (",", "1.234,5"), (",", "1_000"), (".", "1_000")]
)
def test_signs_between_thousands_are_reported(tmp_path, decimal, text):
    path = tmp_path / "x.csv"
    rows = [f"{k}{decimal}5;{k}{decimal}25" for k in range(9)]
    rows[4] = f"1{decimal}5;{text}"
    path.write_text("a;b\n" + "\n".join(rows) + "\n")
    message = rf"'b' holds text \('{text}'\), not numbers in row 4 \(line 6\); correct the value"
    with pytest.raises(ValueError, match=message):
        read(path)


def test_a_later_block_may_contradict_the_types_of_the_first(tmp_path):
    """Arrow guesses types from the first megabyte."""
    path = tmp_path / "x.csv"
    rows = [f"{k},{k}" for k in range(200_000)]
    rows[150_000] = "0.5,n/a"
    path.write_text("a,b\n" + "\n".join(rows) + "\n")
    found = read(path)
    assert found.x[150_000, 0] == 0.5
    assert np.isnan(found.x[150_000, 1])
    assert found.x[199_999].tolist() == [199_999, 199_999]


def test_all_problems_are_reported_at_once_with_their_lines(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text(
        'time,note,left,right\n1,"two\nlines",1,2\n\n2,fine,oops,3\n,fine,4,oh\n4,,5,6\n'
    )
    with pytest.raises(ValueError, match="has 5 problems") as raised:
        read(path, time="time", session="Trial")
    faults = str(raised.value).splitlines()[1:]
    for fault, expected in zip(
        faults,
        (
            "has no column 'Trial' for --session; it has 'time', 'note', 'left', 'right'",
            "time column 'time' has no value in row 2 (line 6)",
            "column 'note' holds text ('two\\nlines'), not numbers; leave it out with --drop note",
            "column 'left' holds text ('oops'), not numbers in row 1 (line 5); correct the value",
            "column 'right' holds text ('oh'), not numbers in row 2 (line 6); correct the value, "
            "or leave the column out: --drop right",
        ),
        strict=True,
    ):
        assert fault.startswith(f"  - {expected}")


def test_columns_are_chosen_by_names_patterns_and_roles(tmp_path):
    path = tmp_path / "x.csv"
    TABLE.assign(trial=["a", "b"] * 15, t=np.arange(30) / 10, note="fine").to_csv(path, index=False)
    found = read(path, time="t", session="trial", drop=["note"])
    np.testing.assert_array_equal(found.x, X)
    np.testing.assert_array_equal(found.times, np.arange(30) / 10)
    assert found.groups.tolist() == ["a", "b"] * 15
    for columns in (["up", "left"], ["up", "l*t"], ["[u]p", "left"]):
        chosen = read(path, columns=columns)
        np.testing.assert_array_equal(chosen.x, X[:, [2, 0]])
        assert chosen.names == ("up", "left")


def test_columns_that_are_hardly_observations_are_named(tmp_path):
    path = tmp_path / "x.csv"
    TABLE.assign(Time=np.arange(30), trial=np.arange(30) // 10, id=range(30)).to_csv(
        path, index=False
    )
    notes = " ".join(read(path).notes)
    assert "--time Time makes it the time of rows" in notes
    assert "--session trial makes it the session of rows" in notes
    assert "--drop id leaves it out" in notes
    assert read(path, time="Time", session="trial", drop=["id"]).notes == ()


@pytest.mark.parametrize(
    ("values", "seconds"),
    [
        (pd.date_range("2026-03-29 01:00", periods=30, freq="60s"), 60),
        (pd.date_range("2026-03-29 01:00", periods=30, freq="60s", tz="UTC"), 60),
        (pd.date_range("2026-03-29", periods=30, freq="D"), 86_400),
        (np.arange(30) * 0.5, 0.5),
    ],
)
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_times_are_numbers_or_dates(tmp_path, suffix, values, seconds):
    table, path = TABLE.assign(t=values), tmp_path / f"x{suffix}"
    (table.to_csv if suffix == ".csv" else table.to_parquet)(path, index=False)
    times = read(path, time="t").times
    unit = np.timedelta64(1_000_000_000, "ns") if times.dtype.kind == "M" else 1.0
    np.testing.assert_allclose(np.diff(times) / unit, seconds)


def test_times_must_increase_within_sessions_only(tmp_path):
    path = tmp_path / "x.csv"
    TABLE.assign(t=[*range(15), *range(15)], day=["a"] * 15 + ["b"] * 15).to_csv(path, index=False)
    assert len(read(path, time="t", session="day").times) == 30
    with pytest.raises(ValueError, match=r"do not at row 15 \(line 17\); sort the rows, or name"):
        read(path, time="t", drop=["day"])


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_positives_may_be_columns_with_a_suffix(tmp_path, suffix):
    path, other = tmp_path / f"x{suffix}", TABLE.iloc[:, ::-1].add_suffix("_next") * -1
    table = pd.concat([TABLE, other], axis=1)
    (table.to_csv if suffix == ".csv" else table.to_parquet)(path, index=False)
    found = read(path, positive_suffix="_next")
    np.testing.assert_array_equal(found.x_pos, -found.x)
    assert found.names == ("left", "right", "up")
    with pytest.raises(ValueError, match="without a partner: 'left'; leave them out"):
        read(path, positive_suffix="_next", drop=["left_next"])


def test_wanted_columns_are_taken_in_order_and_others_are_ignored(tmp_path):
    path = tmp_path / "x.csv"
    TABLE.assign(note="fine").to_csv(path, index=False)
    np.testing.assert_array_equal(read(path, wanted=("up", "left")).x, X[:, [2, 0]])
    with pytest.raises(ValueError, match="no column 'Up' for the model; did you mean 'up'"):
        read(path, wanted=("Up", "left"))
    with pytest.raises(ValueError, match="lacks 'u', 'v', has 'left'"):
        read(path, wanted=("left", "u", "v"))


def test_ragged_lines_are_named(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("a,b\n1,2\n3\n4,5\n6,7,8\n")
    with pytest.raises(ValueError, match="header has 2 columns, but line 3 has 1; nor are there"):
        read(path)
    path.write_text("a,b\n1,2\n3\n")
    with pytest.raises(ValueError, match=r"x\.csv: the header has 2 columns, but line 3 has 1$"):
        read(path)


def test_ragged_lines_are_reported_with_all_other_problems(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("a,b,b\n1,2,3\n3\n4,5,6\n")
    with pytest.raises(ValueError, match="has 3 problems") as raised:
        read(path, time="when")
    for words in ("line 3 has 1", "more than one column 'b'", "no column 'when' for --time"):
        assert words in str(raised.value)


@pytest.mark.parametrize("comments", ["", "# made by a probe\n", "#\n\n# a, b\n"])
def test_comments_before_a_table_are_skipped(tmp_path, comments):
    path = tmp_path / "x.csv"
    TABLE.to_csv(path, index=False)
    path.write_text(comments + path.read_text())
    found = read(path)
    np.testing.assert_array_equal(found.x, X)
    assert found.names == ("left", "right", "up")
    lines = path.read_text().splitlines()
    lines[-3] = lines[-3].replace(".", "x")
    path.write_text("\n".join(lines))
    with pytest.raises(ValueError, match=rf"row {len(X) - 3} \(line {len(lines) - 2}\)"):
        read(path)


@pytest.mark.parametrize(("suffix", "delimiter"), [(".csv", ","), (".txt", " "), (".txt", "  ")])
def test_tables_that_numpy_wrote_are_read(tmp_path, suffix, delimiter):
    """Its header is a comment, and its columns are separated by spaces by default."""
    path = tmp_path / f"x{suffix}"
    header = delimiter.join(["left", "right", "up"])
    np.savetxt(path, X, delimiter=delimiter, header=header, fmt="%.17g")
    found = read(path)
    np.testing.assert_array_equal(found.x, X)
    assert found.names == ("left", "right", "up")
    assert "of comments at the start, the names of columns" in found.notes[0]
    path.write_text(path.read_text() + delimiter.join(["1", "2", "3", "4"]) + "\n")
    with pytest.raises(ValueError, match=f"has 3 columns, but line {len(X) + 2} has 4"):
        read(path)


def test_a_column_that_lacks_most_values_is_named(tmp_path):
    path, sparse = tmp_path / "x.csv", np.full(30, np.nan)
    sparse[::3] = np.arange(10)
    TABLE.assign(sparse=sparse).to_csv(path, index=False)
    assert "'sparse' lacks 20 of 30" in " ".join(read(path).notes)
    assert read(path, drop=["sparse"]).n_incomplete == 0


def test_the_time_to_check_names_grows_with_their_number(tmp_path):
    """20 000 columns took 7 s when names were compared with each other."""
    path = tmp_path / "wide.csv"
    names = ",".join(f"c{k}" for k in range(20_000))
    path.write_text(f"{names}\n" + "\n".join(",".join([f"{r}"] * 20_000) for r in range(3)) + "\n")
    start = time.process_time()
    assert read(path, drop=["c7"]).x.shape == (3, 19_999)
    assert time.process_time() - start < 4


def test_names_cannot_act_on_a_terminal(tmp_path):
    path = tmp_path / "x.csv"
    path.write_text("a\x1b[31m,b\n1,x\n2,y\n")
    with pytest.raises(ValueError, match=r"problem|holds") as raised:
        read(path, session="\x1b[2J")
    assert "\x1b" not in str(raised.value)
