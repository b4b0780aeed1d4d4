"""InfoNCE equals its formula, pair by pair."""

import math

import pytest
import torch

from isolatent.contrast import Dot, InfoNCE, Lp

SIMILARITIES = {
    "dot": (Dot(3.0), lambda u, v: 3 * sum(a * b for a, b in zip(u, v, strict=True))),
    "l1": (Lp(1), lambda u, v: -sum(abs(a - b) for a, b in zip(u, v, strict=True))),
    "l3": (
        Lp(3, weights=2.0),
        lambda u, v: -2 * sum(abs(a - b) ** 3 for a, b in zip(u, v, strict=True)),
    ),
    "weighted": (
        Lp(2, weights=(1.0, 2.0, 5.0)),
        lambda u, v: -sum(w * (a - b) ** 2 for w, a, b in zip((1, 2, 5), u, v, strict=True)),
    ),
}


@pytest.mark.parametrize("symmetric", [False, True])
@pytest.mark.parametrize(("similarity", "s"), SIMILARITIES.values(), ids=SIMILARITIES)
def test_infonce_by_explicit_loops(similarity, s, symmetric, generator):
    h, h_pos = torch.randn(2, 5, 3, generator=generator, dtype=torch.float64)
    u, v = h.tolist(), h_pos.tolist()

    def one_way(u, v):
        terms = [
            math.log(sum(math.exp(s(u[i], v[j])) for j in range(5))) - s(u[i], v[i])
            for i in range(5)
        ]
        return sum(terms) / 5

    expected = (one_way(u, v) + one_way(v, u)) / 2 if symmetric else one_way(u, v)
    ours = InfoNCE(similarity, symmetric=symmetric)(h, h_pos)
    assert float(ours) == pytest.approx(expected, rel=1e-6)


def test_wrong_arguments():
    with pytest.raises(TypeError, match="similarity must be a Similarity"):
        InfoNCE("dot")
    with pytest.raises(ValueError, match="h and h_pos must have the same shape"):
        InfoNCE(Dot())(torch.zeros(3, 2), torch.zeros(4, 2))
    with pytest.raises(ValueError, match="scale must be a finite number > 0"):
        Dot(0.0)
    with pytest.raises(ValueError, match="p must be a finite number >= 1"):
        Lp(0.5)
    with pytest.raises(ValueError, match="weights must be a finite number > 0"):
        Lp(2, weights=-1.0)
