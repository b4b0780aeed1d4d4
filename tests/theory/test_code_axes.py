"""The axis of a code is stored as plain data and shown in words."""

import json
import math

import pytest

from isolatent.theory import Beliefs, CodeAxis, Guarantee, derive_guarantee
from isolatent.theory.axis_claims import with_axes
from isolatent.theory.code_axes import axis_rows, has_timed_blocks

INF = math.inf
RELAXING = CodeAxis(0, (0,), 0.991, 12.34, (8.0, 20.0), INF, (INF, INF))
TURNING = CodeAxis(1, (1, 2), 0.97, 100.0, (50.0, INF), 40.0, (39.0, 41.5), "steps")
UNTIMED = CodeAxis(2, (1, 2), 0.97)
LASTING = CodeAxis(3, (3,), 1.0, INF, (80.0, INF), 300.0, (90.0, INF))


@pytest.mark.parametrize("axis", [RELAXING, TURNING, UNTIMED, LASTING])
def test_plain_data_hold_everything(axis):
    text = json.dumps(axis.to_dict(), allow_nan=False)
    assert CodeAxis.from_dict(json.loads(text)) == axis


def test_the_card_holds_the_axes_as_plain_data():
    blocks = ((0,), (1, 2), (3,))
    card = with_axes(
        derive_guarantee(Beliefs("euclidean")), "dynamics", blocks, "", [RELAXING, TURNING, LASTING]
    )
    stored = json.loads(json.dumps(card.to_dict(), allow_nan=False))
    assert Guarantee.from_dict(stored) == card
    assert stored["code_axes"][0]["time_scale_interval"] == [8.0, 20.0]
    assert stored["code_axes"][1]["period"] == 40.0
    assert [axis["stability"] for axis in stored["code_axes"]] == [0.991, 0.97, 1.0]


def test_cards_of_before_have_no_axes():
    stored = derive_guarantee(Beliefs("euclidean")).to_dict()
    del stored["code_axes"]
    assert Guarantee.from_dict(stored).code_axes == ()


def test_infinite_times_are_words():
    assert (RELAXING.time_scale_text, RELAXING.period_text) == ("12.3 (8 to 20)", "none")
    assert (TURNING.time_scale_text, TURNING.period_text) == ("100 (50 or more)", "40 (39 to 41.5)")
    assert (UNTIMED.time_scale_text, UNTIMED.period_text) == ("–", "–")
    assert LASTING.time_scale_text == "no decay (80 or more)"
    assert LASTING.period_text == "none, or 90 or more"  # not told from a code without a period


def test_times_are_shown_where_they_were_estimated():
    assert axis_rows([UNTIMED])[0] == ("code", "block", "stability")
    headings, first, second = axis_rows([TURNING, UNTIMED])
    assert headings[3:] == ("time scale [steps]", "period [steps]")
    assert first[:2] == ("1", "{1, 2}")
    assert second[3:] == ("–", "–")


def test_a_block_of_all_codes_has_no_stability():
    assert [row[2] for row in axis_rows([TURNING, UNTIMED])[1:]] == ["–", "–"]
    assert axis_rows([RELAXING])[1][2] == "0.99"  # one code is one axis


def test_times_of_a_block_are_not_of_its_codes():
    assert has_timed_blocks([RELAXING, TURNING])
    assert not has_timed_blocks([RELAXING, UNTIMED])


@pytest.mark.parametrize("n", [1, 2])
def test_one_factor_has_no_other_to_be_told_apart_from(n):
    card = derive_guarantee(Beliefs("euclidean"), n_components=n)
    assert card.equivalence == "affine map"
    assert ("MCC counts too" in card.consequence) == (n == 1)
    assert ("rotation" in card.consequence) == (n == 2)
