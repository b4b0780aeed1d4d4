"""Wrong arguments of a loss are told by name, with what is allowed."""

import math

import pytest
import torch

from isolatent.contrast import (
    NCE,
    AlignUniform,
    AnInfoNCE,
    ConstantPotential,
    Dot,
    InfoNCE,
    Lp,
)

H = torch.zeros(4, 2)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: InfoNCE("dot"), TypeError, "similarity must be a Similarity"),
        (
            lambda: InfoNCE(Dot(), engine="cuda"),
            ValueError,
            "engine must be one of 'auto', 'dense'",
        ),
        (lambda: InfoNCE(Dot(), negatives_from="all"), ValueError, "negatives_from must be one of"),
        (lambda: InfoNCE(Dot(), potential=3.0), TypeError, "potential must be a module or None"),
        (lambda: NCE(Dot(), ratio=0), ValueError, "ratio must be a finite number > 0"),
        (lambda: AlignUniform(alpha=1.0), ValueError, "alpha must be a finite number > 0 and < 1"),
        (lambda: AnInfoNCE(0), ValueError, "n must be an integer >= 1"),
        (lambda: AnInfoNCE(3, weights=[1.0, 2.0]), ValueError, "one number or n = 3 of them"),
        (lambda: AlignUniform(potential=ConstantPotential()), ValueError, "AlignUniform has none"),
        (lambda: Dot(1e-50), ValueError, "scale must be a finite number > 1e-37"),
        (lambda: Lp(2, weights=1e39), ValueError, "weights must be a finite number"),
        (lambda: Dot(0.0), ValueError, "scale must be a finite number > "),
        (lambda: Lp(0.5), ValueError, "p must be a finite number >= 1, got 0.5"),
        (lambda: Lp(2, weights=-1.0), ValueError, "weights must be a finite number > 0"),
        (lambda: Lp(2, weights=[1.0, 0.0]), ValueError, r"weights\[1\] must be"),
        (lambda: InfoNCE(Lp(2, [1.0, 1.0, 1.0]))(H, H), ValueError, r"codes \(2\), got 3"),
        (lambda: InfoNCE(Dot())(H, H[:3]), ValueError, "h and h_pos must have the same shape"),
        (lambda: InfoNCE(Dot())(H[:0], H[:0]), ValueError, "B and n at least 1"),
        (lambda: InfoNCE(Dot())(H.long(), H), TypeError, "h must be a tensor of floats"),
        (lambda: InfoNCE(Dot())(H.numpy(), H), TypeError, "h must be .* got ndarray"),
        (lambda: InfoNCE(Dot())(H, H.double()), TypeError, "h_pos must have h's dtype and device"),
        (lambda: InfoNCE(Dot())(H, H, negatives=H[:, :1]), ValueError, "negatives must have shape"),
        (lambda: InfoNCE(Dot())(H, H, negatives=H[None]), ValueError, "negatives must have shape"),
        (
            lambda: InfoNCE(Dot(), negatives_from="given")(H, H),
            ValueError,
            "negatives must be given",
        ),
        (
            lambda: InfoNCE(Dot())(H, H, negatives=torch.zeros(4, 3, 2)),
            ValueError,
            "belong to the anchors.*use symmetric=False",
        ),
        (lambda: InfoNCE(Dot(), gather=True)(H, H), RuntimeError, "init_process_group"),
        (
            lambda: InfoNCE(Dot(), engine="numba")(H.to("meta"), H.to("meta")),
            ValueError,
            "engine='numba' works on CPU tensors only",
        ),
        (
            lambda: InfoNCE(Dot())(H, H.index_fill(0, torch.tensor([2]), math.nan)),
            ValueError,
            "h_pos must be finite, but row 2 holds NaN",
        ),
        (
            lambda: InfoNCE(Dot(), potential=torch.nn.Linear(2, 1))(H, H),
            ValueError,
            "a potential must map codes",
        ),
    ],
)
def test_wrong_arguments(make, error, message):
    with pytest.raises(error, match=message):
        make()
