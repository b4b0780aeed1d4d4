"""An ensemble is the sum of its losses, each on the pairs with its tag."""

import pytest
import torch

from isolatent.contrast import NWJ, AnInfoNCE, Dot, Ensemble, InfoNCE

TAGS = torch.tensor([0, 1, 0, 1, 0, 1, 0, 1, 1])
H = torch.zeros(4, 2)


def expected(losses, h, h_pos, negatives=None):
    own = negatives is not None and negatives.ndim == 3
    return sum(
        loss(h[k == TAGS], h_pos[k == TAGS], negatives[k == TAGS] if own else negatives)
        for k, loss in enumerate(losses)
    )


@pytest.mark.parametrize("shape", [None, (5, 3), (9, 2, 3)])
@pytest.mark.parametrize("policy", ["across", "given"])
def test_an_ensemble_is_the_sum_over_its_tags(shape, policy, generator):
    policy = "across" if shape is None else policy
    h, h_pos = torch.randn(2, 9, 3, generator=generator)
    negatives = None if shape is None else torch.randn(shape, generator=generator)
    losses = [
        AnInfoNCE(3, weights=weights, symmetric=False, negatives_from=policy)
        for weights in (2.0, [1.0, 5.0, 9.0])
    ]
    total = Ensemble(losses)(h, h_pos, negatives, tags=TAGS)
    torch.testing.assert_close(total, expected(losses, h, h_pos, negatives))


def test_a_loss_without_pairs_adds_nothing(generator):
    h, h_pos = torch.randn(2, 9, 3, generator=generator)
    losses = [AnInfoNCE(3), AnInfoNCE(3)]
    alone = Ensemble(losses)(h, h_pos, tags=torch.zeros(9, dtype=torch.int64))
    torch.testing.assert_close(alone, losses[0](h, h_pos))
    assert torch.autograd.grad(alone, list(losses[1].parameters()), allow_unused=True) == (None,)


def test_weights_are_those_of_each_loss():
    loss = Ensemble([AnInfoNCE(2, weights=3.0), AnInfoNCE(2, weights=[1.0, 2.0])])
    torch.testing.assert_close(loss.weights, torch.tensor([[3.0, 3.0], [1.0, 2.0]]))
    assert not hasattr(Ensemble([AnInfoNCE(2), InfoNCE(Dot())]), "weights")


def test_gather_is_that_of_all_losses():
    loss = Ensemble([AnInfoNCE(2), AnInfoNCE(2)])
    assert not loss.gather
    loss.gather = True
    assert [part.gather for part in loss.losses] == [True, True]
    with pytest.raises(RuntimeError, match="init_process_group"):
        loss(H, H, tags=torch.zeros(4, dtype=torch.int64))
    loss.gather = False
    assert loss(H, H, tags=torch.zeros(4, dtype=torch.int64)).isfinite()


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Ensemble([]), TypeError, "losses must be one or more contrastive losses"),
        (lambda: Ensemble([torch.nn.Linear(2, 2)]), TypeError, "one or more contrastive losses"),
        (
            lambda: Ensemble([NWJ(Dot(), gather=True), NWJ(Dot())]),
            ValueError,
            r"losses must have the same gather, got \[True, False\]",
        ),
        (
            lambda: Ensemble([NWJ(Dot())])(H, H, tags=torch.ones(4).long()),
            ValueError,
            "tags must be from 0 to 0",
        ),
        (
            lambda: Ensemble([NWJ(Dot())])(H, H, tags=torch.zeros(3).long()),
            ValueError,
            "tags must be a tensor of 4",
        ),
        (lambda: Ensemble([NWJ(Dot())])(H, H), TypeError, "'tags'"),
    ],
)
def test_wrong_arguments(make, error, message):
    with pytest.raises(error, match=message):
        make()
