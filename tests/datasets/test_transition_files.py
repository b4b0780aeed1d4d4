"""Transitions read from CSV files equal those enumerated by hand."""

import csv
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isolatent.datasets import read_transitions

COLUMNS = "x_t,y_t,area_t,x_t+1,y_t+1,area_t+1"  # one transition in each row
HEADER = "id,cat_id,t_0,t_1,t_2\n"  # one object in each row


def write(path, objects):
    """Write frames (None, or one entry per window) of objects, as in Natural Sprites."""
    longest = max(2, *map(len, objects))
    with path.open("w", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(["id", "cat_id", *(f"t_{k}" for k in range(longest))])
        lines.writerows([k, 7, *frames] for k, frames in enumerate(objects))
    return path


def test_adjacent_frames_in_one_window_are_a_transition(tmp_path):
    same = 1024  # one area, so that no transition is beyond a quantile
    objects = [
        [[(32.0, 16.0, same), None], [(48.0, 0, same), (8.0, 8.0, same)], None],
        [None, [None, (1.0, 2.0, same)], [None, (3.0, 4.0, same)], [(5.0, 6.0, same), None]],
        [[(7.0, 7.0, same), None]],  # a row that ends early
        [[(9.0, 9.0, same), None], None, [(9.0, 9.0, same), None]],
    ]
    moves = read_transitions(write(tmp_path / "natural.csv", objects), rescale=False)
    by_hand = [
        [16 / 64, 32 / 64, 0.5, 0, 48 / 64, 0.5],
        [2 / 64, 1 / 64, 0.5, 4 / 64, 3 / 64, 0.5],
    ]
    assert moves.table.tolist() == by_hand
    assert repr(moves) == "RecordedTransitions(2 transitions, natural.csv)"


def test_areas_beyond_the_quantiles_are_dropped(tmp_path):
    areas = np.arange(21)  # the quantiles are 1 and 19
    objects = [[[(k, k, k)], [(k + 1, 2 * k, 4 * k)]] for k in areas.tolist()]
    path = write(tmp_path / "natural.csv", objects)
    table = read_transitions(path, rescale=False).table
    kept = areas[1:20]
    root = kept**0.5
    by_hand = np.stack([kept, kept, root, 2 * kept, kept + 1, 2 * root], axis=1) / 64
    assert table == pytest.approx(by_hand)
    rescaled = read_transitions(path).table
    for k in range(3):  # x, y and scale are each mapped to [0, 1]
        both = rescaled[:, [k, 3 + k]]
        assert (both.min(), both.max()) == (0, 1)


NUMBERS = st.floats(0, 63)
MOMENTS = st.none() | st.lists(
    st.none() | st.tuples(NUMBERS, NUMBERS, st.integers(0, 4096)), min_size=2, max_size=2
)


@given(objects=st.lists(st.lists(MOMENTS, max_size=5), min_size=1, max_size=8))
@settings(max_examples=50, deadline=None)
def test_random_files_are_read_as_enumerated(objects, tmp_path_factory):
    path = write(tmp_path_factory.mktemp("files") / "natural.csv", objects)
    steps = [
        (x / 64, y / 64, (area / 4096) ** 0.5, x_pos / 64, y_pos / 64, (area_pos / 4096) ** 0.5)
        for frames in objects
        for before, after in pairwise(frames)
        for window in range(2)
        if before and after and before[window] and after[window]
        for (y, x, area), (y_pos, x_pos, area_pos) in [(before[window], after[window])]
    ]
    areas = np.array(steps).reshape(-1, 6)[:, [2, 5]] ** 2 * 4096
    low, high = np.percentile(areas, [5, 95], axis=0) if steps else (0, 0)
    inside = ((areas > low - 1e-6) & (areas < high + 1e-6)).all(1)
    expected = np.array(steps).reshape(-1, 6)[inside]
    if len(expected):
        assert read_transitions(path, rescale=False).table == pytest.approx(expected)
    else:
        with pytest.raises(ValueError, match=r"has no transition|without one"):
            read_transitions(path, rescale=False)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEADER + '1,1,"[(1, 2, 3)]"\n2,1,,"[(1, 2"\n', "line 3, column 't_1' must be empty or a"),
        (HEADER + "1,1,,,(1; 2)\n", r"line 2, column 't_2' must be empty .*, got '\(1; 2\)'"),
        (HEADER + '1,1,"__import__(""os"")"\n', "line 2, column 't_0' must be empty or a list"),
        (HEADER + '1,1,"[(nan, 1, 2)]"\n', "line 2, column 't_0' must be empty or a list"),
        (HEADER + '1,1,"(1, 2, 3)"\n', r"column 't_0' must be empty or a list .*, got '\(1, 2"),
        (HEADER + '1,1,"[(1, 2)]"\n', r"column 't_0' must hold tuples .* got \(1, 2\)"),
        (HEADER + '1,1,"[[1, 2, 3]]"\n', r"column 't_0' must hold tuples .* got \[1, 2, 3\]"),
        (HEADER + '1,1,"[(1, 1e999, 3)]"\n', r"must hold finite .*, got \(1, inf, 3\)"),
        (HEADER + f'1,1,"[(1, {10**400}, 3)]"\n', r"must hold finite .*, got \(1, 1000"),
        (HEADER + '1,1,"[(1, True, 3)]"\n', r"must hold finite .*, got \(1, True, 3\)"),
        (HEADER + "1,1,\"[(1, 'a', 3)]\"\n", r"must hold finite .*, got \(1, 'a', 3\)"),
        (HEADER + '1,1,"[(1, 2, -3)]"\n', r"with area >= 0, got \(1, 2, -3\)"),
        (
            HEADER + '1,1,"[(1, 2, 3)]","[(1, 2, 3), None]"\n',
            "line 2, column 't_1' must have as many crop windows as the column before, 1, got 2",
        ),
        (HEADER + "1,1,,,,,\n", "line 2 must have at most 5 cells, got 7"),
        (HEADER + '1,1,"[(1, 2, 3)]",,"[(1, 2, 3)]"\n', "has no transition"),
        (HEADER, "has no transition"),
        (
            HEADER + '1,1,"[(1, 2, 3)]","[(1, 2, 4)]","[(1, 2, 3)]"\n',
            "must have a transition with both areas .*, got 2 transitions without one",
        ),
        ("id,t_0,t_2\n", r"the columns from t_0 to the last must be .* got \['t_0', 't_2'\]"),
        ("id,t_0\n", r"the columns from t_0 to the last must be .* got \['t_0'\]"),
        (HEADER + f'1,1,"{"[" * 200_000}"\n', "line 2, column 't_0' must be empty or a"),
    ],
)
def test_errors_name_line_and_column(tmp_path, text, message):
    path = tmp_path / "natural.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=f"^natural.csv: .*{message}"):
        read_transitions(path)


def test_cells_of_any_length_are_read(tmp_path):
    limit = csv.field_size_limit()
    frames = [[*[None] * 30_000, (32.0, y, 1024)] for y in (16.0, 0.0)]  # 180 000 characters
    moves = read_transitions(write(tmp_path / "natural.csv", [frames]), rescale=False)
    assert moves.table.tolist() == [[0.25, 0.5, 0.5, 0, 0.5, 0.5]]
    assert csv.field_size_limit() == limit


def test_columns_are_found_by_name(tmp_path):
    path = tmp_path / "moves.csv"
    path.write_text(f',id,{COLUMNS}\n0,"a",0,2,4,8,4,16\n1,"b",2,3,9,2,3,4\n')
    moves = read_transitions(path)
    assert moves.table == pytest.approx(
        np.array([[0, 0, 0, 1, 1, 1], [0.25, 0.5, 0.5, 0.25, 0.5, 0]])
    )
    assert repr(moves) == "RecordedTransitions(2 transitions, moves.csv)"
    path.write_text(
        "scale_after,x_before,Y_before,scale_before,x_after,y_after\n1,0,0.5,0.25,1,1\n"
    )
    assert read_transitions(path, rescale=False).table.tolist() == [[0, 0.5, 0.25, 1, 1, 1]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "x_t,y_t\n1,2\n",
            r"must have one of the columns \['scale_t', .*; it has \['x_t', 'y_t'\]",
        ),
        (COLUMNS + "\n", "has no rows"),
        (COLUMNS + "\n1,2,a,1,2,3\n", "column 'area_t' must hold numbers"),
        (COLUMNS + "\n1,2,3,1,2,\n2,2,3,1,2,3\n", "column 'area_t.1' must be finite .* row 0"),
        (COLUMNS + "\n1,2,-3,1,2,3\n", "column 'area_t' must be finite and not negative, got -3"),
        (COLUMNS + "\n1,2,3,1,2,4\n", "x must vary to be rescaled, got only 1"),
        (COLUMNS + "\n1,2\n", "not a CSV file"),
        (COLUMNS + ",X_t\n1,2,3,1,2,4,5\n", r"must have each column once, got several \['x_t'\]"),
        (COLUMNS + ",caf\xe9\n1,2,3,1,2,4,5\n", r"moves.csv: not a CSV file \(.*decode byte"),
    ],
)
def test_unusable_files_are_refused(tmp_path, text, message):
    path = tmp_path / "moves.csv"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(ValueError, match=message):
        read_transitions(path)


def test_scale_before_and_area_after_are_refused(tmp_path):
    path = tmp_path / "moves.csv"
    path.write_text("x_t,y_t,scale_t,x_t+1,y_t+1,area_t+1\n0,0,0.5,1,1,0.25\n")
    with pytest.raises(ValueError, match=r"moves.csv: must have either scale or area .* 'scale_t'"):
        read_transitions(path, rescale=False)
    path.write_text("x_t,y_t,scale_t,area_t,x_t+1,y_t+1,area_t+1\n0,0,9,0.25,1,1,0.36\n")
    assert read_transitions(path, rescale=False).table.tolist() == [[0, 0, 0.5, 1, 1, 0.6]]


def test_errors_name_the_cell_with_bytes_that_are_not_utf8(tmp_path):
    path = tmp_path / "natural.csv"
    path.write_bytes(b"\xef\xbb\xbfid,cat_id,t_0,t_1\n1,1,\xff\n")
    with pytest.raises(ValueError, match=r"line 2, column 't_0' must be empty"):
        read_transitions(path)
