"""From beliefs and names to modules."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from isolatent.checks import check_one_of
from isolatent.contrast import (
    NCE,
    NWJ,
    AnInfoNCE,
    ConstantPotential,
    ContrastiveLoss,
    Dot,
    InfoNCE,
    Lp,
    NetworkPotential,
    SaturatedInfoNCE,
    Similarity,
    SpectralContrastive,
)
from isolatent.encoders import (
    MLP,
    BoxHead,
    ConvEncoder,
    PaperMLP,
    PooledEncoder,
    PrincipalAxes,
    ResidualEncoder,
    SphereHead,
    Straightening,
    Whitening,
)
from isolatent.theory import (
    POTENTIALS,
    Guarantee,
    derive_guarantee,
    matching_head,
    matching_similarity,
)

__all__ = [
    "ENCODERS",
    "LOSSES",
    "Beliefs",
    "build_encoder",
    "build_loss",
    "build_saturated_loss",
    "dtype_of",
    "guarantee_of",
    "head_of",
]

IMAGE_ENCODERS = {"conv": ConvEncoder, "pooled": PooledEncoder, "residual": ResidualEncoder}
CONV, SMALLEST = 64, 16  # height and width: all that "conv" takes, the least that others do
ENCODERS = ("mlp", "paper", *IMAGE_ENCODERS)
LOSSES: dict[str, type[ContrastiveLoss]] = {
    "infonce": InfoNCE,
    "aninfonce": AnInfoNCE,
    "nce": NCE,
    "scl": SpectralContrastive,
    "nwj": NWJ,
}
WIDTH, WIDTH_PER_CODE = 128, 8  # of the perceptron's hidden layers


class Beliefs:
    """What an estimator was told about the world; the names are those of ``ContrastiveICA``."""

    def __init__(self, estimator: Any) -> None:
        self.n: int = estimator.n_components
        self.space: str = estimator.space
        self.marginal: str = estimator.marginal
        self.conditional: str = estimator.conditional
        self.p: float | None = estimator.p
        self.potentials: str | None = estimator.potentials
        self.similarity, self.exponent = matching_similarity(self.conditional, self.p)


def build_encoder(name: str, shape: tuple[int, ...], beliefs: Beliefs) -> nn.Module:
    """An encoder by its name, for observations of that shape, with the head of the space."""
    check_one_of("encoder", name, ENCODERS)
    n = beliefs.n
    images = name in IMAGE_ENCODERS
    if len(shape) != (3 if images else 1):
        expected = "(N, channels, height, width)" if images else "(N, features)"
        got = ", ".join(map(str, shape))
        raise ValueError(f"X must have shape {expected} for encoder={name!r}, got (N, {got})")
    if images:
        _check_size(name, shape)
    layers: list[nn.Module]
    if images:
        layers = [IMAGE_ENCODERS[name](n, shape[0])]
    elif name == "paper":
        layers = [PaperMLP(shape[0], n)]
    else:
        width = max(WIDTH, WIDTH_PER_CODE * n)
        layers = [Whitening(shape[0]), MLP(shape[0], n, hidden=(width, width))]
    head = matching_head(beliefs.space)
    if head == "sphere":
        layers.append(SphereHead())
        if beliefs.similarity == "weighted" and beliefs.marginal == "uniform":
            layers.append(PrincipalAxes(n))
    elif head == "box":
        layers += [BoxHead(learn_bound=False), Straightening(n, beliefs.exponent or 2.0)]
    return nn.Sequential(*layers)


def _check_size(name: str, shape: tuple[int, ...]) -> None:
    whole = name == "conv"
    if shape[1:] != (CONV, CONV) if whole else min(shape[1:]) < SMALLEST:
        expected = f"{CONV} × {CONV}" if whole else f"at least {SMALLEST} × {SMALLEST}"
        got = ", ".join(map(str, shape))
        raise ValueError(
            f"X must have images of {expected} pixels for encoder={name!r}, got (N, {got})"
        )


def build_loss(name: str, beliefs: Beliefs) -> ContrastiveLoss:
    """A loss by its name, with the similarity and the potentials that the beliefs ask for."""
    check_one_of("loss", name, LOSSES)
    n = beliefs.n
    options: dict[str, Any] = {}
    kind = potentials_of(name, beliefs)
    if kind == "constant":
        options = {"potential_pos": ConstantPotential()}
    elif kind == "learned":
        options = {"potential": NetworkPotential(n), "potential_pos": NetworkPotential(n)}
    if name == "aninfonce":
        return AnInfoNCE(n, **options)
    similarity: Similarity
    if beliefs.similarity == "dot":
        similarity = Dot(learn_scale=True)
    elif beliefs.similarity == "weighted":
        similarity = Lp(p=2, weights=[0.5] * n, learn_weights=True)
    else:
        similarity = Lp(p=beliefs.exponent or 2.0, learn_weights=True)
    return LOSSES[name](similarity, **options)


def potentials_of(loss: str, beliefs: Beliefs) -> str:
    """Those asked for, or the least with which the loss has its optimum at the true factors."""
    if beliefs.potentials is not None:
        return check_one_of("potentials", beliefs.potentials, POTENTIALS)
    if beliefs.marginal != "uniform":
        return "learned"
    if loss in ("infonce", "aninfonce"):
        return "none"
    return "constant" if beliefs.conditional == "vmf" else "learned"


def build_saturated_loss(name: str, beliefs: Beliefs, batch: int) -> SaturatedInfoNCE | None:
    """What replaces the loss where it saturates; None where nothing is known that would."""
    if name != "infonce" or beliefs.similarity == "weighted" or batch < 3:
        return None
    if potentials_of(name, beliefs) != "none":  # it has no place for them
        return None
    geometry = matching_head(beliefs.space)
    p = 2.0 if geometry == "sphere" or beliefs.exponent is None else beliefs.exponent
    return SaturatedInfoNCE(beliefs.n, p, geometry, batch)


def guarantee_of(
    beliefs: Beliefs, loss: str | nn.Module, trained: nn.Module, head: str | None, n_features: int
) -> Guarantee:
    """What may be claimed after training with these choices."""
    name = loss if isinstance(loss, str) else _name_of(loss)
    if name is None or not isinstance(trained, ContrastiveLoss):
        return Guarantee(None, (), "linear_r2", "", f"no theorem is known for the loss {loss!r}")
    similarity, exponent = _declared(trained.similarity)
    weights = None
    if similarity == "weighted":
        weights = trained.similarity.coordinate_weights(beliefs.n).detach().tolist()
    return derive_guarantee(
        beliefs.space,
        beliefs.marginal,
        beliefs.conditional,
        p=beliefs.p,
        similarity=similarity,
        similarity_p=exponent,
        loss=name,
        potentials=_potentials(trained),
        head=head,
        weights=weights,
        n_components=beliefs.n,
        n_features=n_features,
    )


def head_of(encoder: nn.Module, codes: Tensor) -> str:
    """Where the codes of someone's own encoder live, as far as that can be seen."""
    radii = codes.detach().norm(dim=1)
    if bool((radii - radii.mean()).abs().max() < 1e-3 * radii.mean()):
        return "sphere"
    last = [*encoder.modules()][-1]
    return "box" if isinstance(last, BoxHead | Straightening | nn.Sigmoid) else "free"


def _name_of(loss: nn.Module) -> str | None:
    return next((name for name, kind in LOSSES.items() if type(loss) is kind), None)


def _declared(similarity: Similarity) -> tuple[str, float | None]:
    if similarity.p is None:
        return "dot", None
    learned = getattr(similarity, "log_weights", None)
    if similarity.p == 2 and learned is not None and learned.ndim == 1:
        return "weighted", 2.0
    return "lp", similarity.p


def _potentials(loss: ContrastiveLoss) -> str:
    kinds = {type(module) for module in (loss.potential, loss.potential_pos)}
    if kinds == {type(None)}:
        return "none"
    return "constant" if kinds <= {type(None), ConstantPotential} else "learned"


def dtype_of(encoder: nn.Module) -> torch.dtype:
    """The dtype of what is trained."""
    for parameter in encoder.parameters():
        if parameter.is_floating_point() and parameter.requires_grad:
            return parameter.dtype
    raise ValueError(f"encoder must have parameters to train, got {encoder!r}")
