"""Heads map codes into their space, of a size that is learned or fixed."""

import pytest
import torch

from isolatent.encoders import BoxHead, SphereHead


def test_heads_land_where_they_say(generator):
    h = 5 * torch.randn(200, 4, generator=generator)
    torch.testing.assert_close(SphereHead(2.0)(h).norm(dim=-1), torch.full((200,), 2.0))
    boxed = BoxHead(bound=3.0)(h)
    assert (boxed >= 0).all()
    assert (boxed <= 3).all()


@pytest.mark.parametrize(
    ("head", "learned"),
    [
        (SphereHead(), 0),
        (SphereHead(learn_radius=True), 1),
        (BoxHead(), 1),
        (BoxHead(learn_bound=False), 0),
    ],
)
def test_sizes_are_learned_or_not(head, learned):
    assert len(list(head.parameters())) == learned
    assert len(head.state_dict()) == 1
