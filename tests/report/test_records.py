"""Fields of stored records: well-formed ones are read, missing and malformed ones are not."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from isolatent.report import read_results, records

# A well-formed value of each field, and how it is read.
FIELDS = {
    "curve": (
        [{"number": 1, "loss": 2.0}],
        lambda value: records.read_curve({"curve": value}),
    ),
    "correlation": ([[0.5, -1.0], [0.1, 0.2]], records.read_absolute),
    "scatter": ({"true": [[1.0]], "recovered": [[2.0]]}, records.read_scatter),
    "scale": ({"learned": 9.8, "true": 10.0}, lambda value: records.read_weights(value)[0]),
    "strips": (
        {"kind": "nearest", "rows": ["iVBO"], "columns": 9, "size": 64},
        lambda value: records.read_traversal({"strips": value}),
    ),
}
MALFORMED = [None, [], {}, "text", 3, [[1], [1, 2]], [{}], math.nan, {"true": [[1.0]]}]


@pytest.mark.parametrize("field", FIELDS)
def test_a_well_formed_field_is_read(field):
    value, read = FIELDS[field]
    assert read(value)


@pytest.mark.parametrize("value", MALFORMED, ids=repr)
@pytest.mark.parametrize("field", FIELDS)
def test_a_malformed_field_is_not_read(field, value):
    assert not FIELDS[field][1](value)


@pytest.mark.parametrize(
    "value", [{"rows": 3}, {"rows": ["a"]}, {"rows": ["a"], "columns": "x", "size": 8}], ids=repr
)
def test_an_incomplete_traversal_is_not_read(value):
    assert records.read_traversal({"strips": value}) is None


def test_weights_of_several_ways_are_concatenated():
    scale = {"learned": [[1.0, 2.0], [3.0, 4.0]], "true": [[1, 2], [3, 5]]}
    assert records.read_weights(scale) == ((1.0, 2.0, 3.0, 4.0), (1, 2, 3, 5))
    assert records.read_weights(scale | {"true": [1, 2, 3]})[1] == ()  # as many as learned, or one


@given(st.none() | st.booleans() | st.text() | st.floats() | st.integers(-(10**9), 10**9))
def test_numbers_are_finite_and_not_truth_values(value):
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    expected = float(value) if is_number and math.isfinite(value) else None
    assert records.read_number(value) == expected


def test_results_are_found_in_a_directory_and_below_it(reproduced):
    ((experiment, runs),) = found = read_results(reproduced)
    assert (experiment["name"], len(runs)) == ("tiny", 6)
    assert found == read_results(reproduced.parent)
    assert read_results(reproduced / "runs") == []


def test_entries_that_are_not_numbers_become_nan():
    np.testing.assert_array_equal(records.read_absolute([[None, -2.0]]), [[math.nan, 2.0]])
