"""The claim follows from the beliefs."""

import pytest

from isolatent.evaluation import derive_guarantee


@pytest.mark.parametrize(
    ("beliefs", "equivalence", "metric"),
    [
        (("sphere", "uniform", "vmf"), "orthogonal map", "linear_r2"),
        (("box", "uniform", "laplace"), "signed permutation and scaling", "mcc"),
        (("box", "uniform", "normal"), "affine map", "linear_r2"),
    ],
)
def test_theorems(beliefs, equivalence, metric):
    guarantee = derive_guarantee(*beliefs)
    assert guarantee.equivalence == equivalence
    assert guarantee.metric == metric
    card = str(guarantee)
    assert card.startswith(f"{equivalence}, if: uniform marginal")
    assert "Zimmermann" in card


@pytest.mark.parametrize(
    ("beliefs", "gap"),
    [
        (("sphere", "unknown", "vmf"), "need a uniform marginal"),
        (("euclidean", "uniform", "normal"), "does not exist on an unbounded space"),
        (("sphere", "uniform", "vmf", 9, 3), "9 factors cannot be mixed injectively into 3"),
    ],
)
def test_gaps(beliefs, gap):
    guarantee = derive_guarantee(*beliefs)
    assert guarantee.equivalence is None
    assert gap in str(guarantee)


@pytest.mark.parametrize(
    ("beliefs", "message"),
    [
        (("torus", "uniform", "vmf"), "space must be one of 'sphere', 'box', 'euclidean'"),
        (("sphere", "normal", "vmf"), "marginal must be one of"),
        (("sphere", "uniform", "cauchy"), "conditional must be one of"),
        (("box", "uniform", "vmf"), "'vmf' goes with 'sphere'"),
    ],
)
def test_wrong_beliefs(beliefs, message):
    with pytest.raises(ValueError, match=message):
        derive_guarantee(*beliefs)
