"""Build encoders and losses from their names and from beliefs, and read the traits of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from isolatent.checks import check_one_of
from isolatent.contrast import (
    NCE,
    NWJ,
    AlignUniform,
    AnInfoNCE,
    ConstantPotential,
    ContrastiveLoss,
    Dot,
    Ensemble,
    FullAnInfoNCE,
    InfoNCE,
    Lp,
    NetworkDynamics,
    NetworkPotential,
    PosteriorInfoNCE,
    SaturatedAnInfoNCE,
    SaturatedInfoNCE,
    Similarity,
    SpectralContrastive,
)
from isolatent.contrast.saturated import resolved_scale
from isolatent.encoders import (
    MLP,
    Anscombe,
    BoxHead,
    ConvEncoder,
    PaperMLP,
    PooledEncoder,
    PrincipalAxes,
    RecordingEncoders,
    ResidualEncoder,
    SphereHead,
    Straightening,
    Whitening,
)
from isolatent.theory import POTENTIALS, Beliefs, Guarantee, derive_guarantee
from isolatent.training.capacity import Capacity, default_capacity
from isolatent.training.orthogonal import MANY_CODES
from isolatent.training.relaxations import attach, needs_potentials, relaxations_of

__all__ = [
    "ENCODERS",
    "IMAGE_ENCODERS",
    "LOSS_CLASSES",
    "RECORDING_ENCODERS",
    "WHITENED",
    "build_encoder",
    "build_loss",
    "build_recording_encoders",
    "build_saturated_loss",
    "guarantee_of",
    "head_of",
    "implied_relaxations",
    "learned_weights",
    "learns_size",
    "may_lose_factors",
    "saved_whitening",
]

IMAGE_ENCODERS = {"conv": ConvEncoder, "pooled": PooledEncoder, "residual": ResidualEncoder}
MIN_IMAGE_SIZE = 16  # pixels of a side
ENCODERS = ("mlp", "deep", "paper", *IMAGE_ENCODERS)
WHITENING_TENSORS = ("0.matrix", "1.matrix")  # without and with a transformation of counts
RECORDING_ENCODERS = ("mlp", "paper")  # for recordings with columns of their own
WHITENED = ("mlp", "deep")  # encoders whose first layer is estimated from pairs
DEEP_LAYERS, DEEP_WIDTH = 3, 2  # of the perceptron of "deep"; its width is relative to "mlp"
LOSS_CLASSES: dict[str, type[ContrastiveLoss]] = {
    "infonce": InfoNCE,
    "aninfonce": AnInfoNCE,
    "nce": NCE,
    "scl": SpectralContrastive,
    "nwj": NWJ,
}


def build_encoder(
    name: str,
    shape: tuple[int, ...],
    beliefs: Beliefs,
    n_components: int,
    factor_scale: bool = False,
    whitening: Whitening | None = None,
    counts: bool = False,
    capacity: Capacity | None = None,
) -> nn.Module:
    """Build an encoder by name, for observations of a shape, with the head of the space.

    Args:
        name: One of ``ENCODERS``.
        shape: Shape of an observation.
        beliefs: What is believed about the world.
        n_components: Number of codes.
        factor_scale: Whether each code may get a weight of its own, besides by the beliefs.
        whitening: First layer of ``"mlp"`` and ``"deep"``; by default it keeps all directions.
        counts: Whether observations are counts, which are transformed first.
        capacity: Capacity of the perceptron of ``"mlp"``; by default that for many pairs.
    """
    check_one_of("encoder", name, ENCODERS)
    images = name in IMAGE_ENCODERS
    if len(shape) not in ((2, 3) if images else (1,)):
        expected = "(N, channels, height, width)" if images else "(N, features)"
        got = ", ".join(map(str, shape))
        raise ValueError(f"X must have shape {expected} for encoder={name!r}, got (N, {got})")
    if images:
        _check_image_size(name, shape)
    layers: list[nn.Module]
    if images:
        channels, size = 1 if len(shape) == 2 else shape[0], shape[-2:]
        if name == "conv":
            layers = [ConvEncoder(n_components, channels, (size[0], size[1]))]
        else:
            layers = [IMAGE_ENCODERS[name](n_components, channels)]
        if len(shape) == 2:  # images of one channel, which is not spelt out
            layers.insert(0, nn.Unflatten(1, (1, shape[0])))
    elif name == "paper":
        layers = [PaperMLP(shape[0], n_components)]
    else:
        capacity = default_capacity(n_components) if capacity is None else capacity
        first = Whitening(shape[0]) if whitening is None else whitening
        hidden: tuple[int, ...] = (capacity.width, capacity.width) if capacity.width else ()
        if name == "deep":
            hidden = (DEEP_WIDTH * default_capacity(n_components).width,) * DEEP_LAYERS
        layers = [first, MLP(first.n_kept, n_components, hidden, dropout=capacity.dropout)]
    if counts:
        layers.insert(0, Anscombe())
    if beliefs.head == "sphere":
        layers.append(SphereHead())
        weighted = factor_scale or beliefs.similarity == "weighted"
        if weighted and beliefs.marginal == "uniform":
            layers.append(PrincipalAxes(n_components))
    elif beliefs.head == "box":
        straightening = Straightening(n_components, beliefs.exponent or 2.0)
        layers += [BoxHead(learn_bound=False), straightening]
    return nn.Sequential(*layers)


def build_recording_encoders(
    name: str,
    widths: Sequence[int],
    beliefs: Beliefs,
    n_components: int,
    whitenings: Sequence[Whitening | None],
    **options: Any,
) -> nn.Module:
    """Build an encoder for each recording by name, which share the head of the space.

    Args:
        name: One of ``RECORDING_ENCODERS``.
        widths: Number of columns of each recording.
        beliefs: What is believed about the world.
        n_components: Number of codes.
        whitenings: First layer of each encoder, if it has one.
        **options: ``factor_scale``, ``counts`` and ``capacity`` of :func:`build_encoder`.
    """
    encoders: list[nn.Module] = []
    heads: list[nn.Module] = []
    for width, whitening in zip(widths, whitenings, strict=True):
        built = build_encoder(name, (width,), beliefs, n_components, whitening=whitening, **options)
        assert isinstance(built, nn.Sequential)
        last = max(i for i, layer in enumerate(built) if isinstance(layer, MLP)) + 1
        encoders.append(built[:last])
        heads = [*built][last:]
    return nn.Sequential(RecordingEncoders(encoders, widths), *heads)


def saved_whitening(tensors: Mapping[str, Tensor], shape: tuple[int, ...]) -> Whitening | None:
    """Return a whitening with as many directions as the one that an encoder was saved with.

    Args:
        tensors: State of the encoder.
        shape: Shape of an observation.
    """
    matrices = [tensor for name, tensor in tensors.items() if name in WHITENING_TENSORS]
    return Whitening(shape[0], n_kept=matrices[0].shape[1]) if matrices else None


def _check_image_size(name: str, shape: tuple[int, ...]) -> None:
    if min(shape[-2:]) < MIN_IMAGE_SIZE:
        got = ", ".join(map(str, shape))
        raise ValueError(
            f"X must have images of at least {MIN_IMAGE_SIZE} × {MIN_IMAGE_SIZE} pixels for "
            f"encoder={name!r}, got (N, {got})"
        )


def build_loss(
    name: str,
    beliefs: Beliefs,
    n_components: int,
    potentials: str | None = None,
    relaxed: Sequence[str] = (),
) -> ContrastiveLoss:
    """Build a loss by name, with the similarity and the potentials that the beliefs ask for.

    Args:
        name: A key of ``LOSS_CLASSES``.
        beliefs: What is believed about the world.
        n_components: Number of codes.
        potentials: Potentials instead of those that the loss needs under the beliefs.
        relaxed: Relaxations, see :mod:`isolatent.contrast.relaxations`. Weights of the codes are
            left out where the similarity has some already, and for free codes, whose sizes stand
            for them.
    """
    loss = _build_declared_loss(name, beliefs, n_components, potentials)
    if needs_potentials(relaxed) and potentials not in (None, "learned"):
        raise ValueError(
            f"potentials must be None or 'learned' with relax={tuple(relaxed)}, got {potentials!r}"
        )
    attach(loss, [r for r in relaxed if r not in implied_relaxations(name, beliefs)], n_components)
    return loss


def implied_relaxations(loss: str, beliefs: Beliefs) -> tuple[str, ...]:
    """Return relaxations that change nothing, since the model has them already."""
    weighted = loss == "aninfonce" or beliefs.similarity == "weighted" or beliefs.head == "free"
    return ("factor_scale",) if weighted else ()


def _build_declared_loss(
    name: str, beliefs: Beliefs, n_components: int, potentials: str | None
) -> ContrastiveLoss:
    check_one_of("loss", name, LOSS_CLASSES)
    options: dict[str, Any] = {}
    kind = _potentials(name, beliefs, potentials)
    if kind == "constant":
        options = {"potential_pos": ConstantPotential()}
    elif kind == "learned":
        networks = [NetworkPotential(n_components) for _ in range(2)]
        options = dict(zip(("potential", "potential_pos"), networks, strict=True))
    if name == "aninfonce":
        return AnInfoNCE(n_components, **options)
    similarity: Similarity
    if beliefs.similarity == "dot":
        similarity = Dot(learn_scale=True)
    elif beliefs.similarity == "weighted":
        similarity = Lp(p=2, weights=[0.5] * n_components, learn_weights=True)
    else:
        similarity = Lp(p=beliefs.exponent or 2.0, learn_weights=True)
    return LOSS_CLASSES[name](similarity, **options)


def _potentials(loss: str, beliefs: Beliefs, potentials: str | None) -> str:
    if potentials is None:
        return beliefs.potentials(loss)
    return check_one_of("potentials", potentials, POTENTIALS)


def build_saturated_loss(
    name: str,
    beliefs: Beliefs,
    n_components: int,
    potentials: str | None,
    batch_size: int,
    relaxed: Sequence[str] = (),
) -> SaturatedInfoNCE | InfoNCE | None:
    """Build the loss that replaces a saturated one; None where there is no such loss.

    On a sphere with many codes it is InfoNCE with the largest scale that a batch resolves: with a
    wide kernel alone, alignment and entropy see little more than moments of so many codes.
    """
    if name not in ("infonce", "aninfonce") or batch_size < 3:
        return None
    # Free codes need no potentials: narrow steps determine the map for every marginal.
    potentials = "none" if beliefs.head == "free" else _potentials(name, beliefs, potentials)
    if potentials != "none" or set(relaxed) - {"pairing", "factor_scale"}:
        return None
    if beliefs.head == "free" and "pairing" in relaxed:
        return None  # nothing bounds free codes against a collapse that leaves out the far pairs
    p = 2.0 if beliefs.head == "sphere" or beliefs.exponent is None else beliefs.exponent
    if name == "aninfonce" or beliefs.similarity == "weighted" or "factor_scale" in relaxed:
        # On a sphere unrelated pairs and weights were not tried together.
        defined = beliefs.head == "box" or (beliefs.head == "sphere" and "pairing" not in relaxed)
        return SaturatedAnInfoNCE(n_components, p, beliefs.head, batch_size) if defined else None
    if beliefs.head == "sphere" and n_components >= MANY_CODES and "pairing" not in relaxed:
        return InfoNCE(Dot(resolved_scale(n_components, batch_size)))
    return SaturatedInfoNCE(n_components, p, beliefs.head, batch_size)


def may_lose_factors(loss: str | nn.Module, beliefs: Beliefs, relaxed: Sequence[str] = ()) -> bool:
    """Return whether training must keep codes uniform at first, see :class:`SphereMoments`.

    On a sphere with a uniform marginal, learned weights of each code have a second optimum.
    """
    weighted = loss == "aninfonce" or beliefs.similarity == "weighted" or "factor_scale" in relaxed
    uniform = beliefs.marginal == "uniform" and not needs_potentials(relaxed)
    return weighted and uniform and beliefs.head == "sphere"


def guarantee_of(
    beliefs: Beliefs,
    loss: nn.Module,
    *,
    head: str | None = None,
    learns_size: bool = False,
    weights: list[float] | None = None,
    weight_errors: list[float] | None = None,
    n_components: int,
    n_features: int | None = None,
    n_factors: int | None = None,
) -> Guarantee:
    """Return what may be claimed of codes that were trained with a loss.

    Args:
        beliefs: What is believed about the world.
        loss: The loss module; its similarity and potentials are read.
        head: The output head, by default the one that the beliefs ask for.
        learns_size: Whether the radius or the side of the head is learned.
        weights: Learned weights of the similarity, see :func:`learned_weights`.
        weight_errors: Their relative standard errors, see
            :func:`isolatent.training.measurements.weight_errors_of`.
        n_components: Number of codes.
        n_features: Number of observed dimensions, where it is known.
        n_factors: Number of factors, where it is known.
    """
    if isinstance(loss, Ensemble):
        options: dict[str, Any] = {
            "head": head,
            "learns_size": learns_size,
            "n_components": n_components,
            "n_features": n_features,
            "n_factors": n_factors,
        }
        cards = [guarantee_of(beliefs, part, **options) for part in loss.losses]
        if all(card == cards[0] for card in cards):
            return cards[0]
        gap = "the losses of an ensemble must all have the same similarity, potentials and scale"
        return Guarantee(None, (), "linear_r2", "", gap)
    if isinstance(loss, PosteriorInfoNCE):
        learned = loss.potential is not None and loss.potential_pos is not None
        return derive_guarantee(
            beliefs,
            similarity="dot" if loss.geometry == "sphere" else "lp",
            potentials="learned" if learned else "none",
            head=loss.geometry,
            relaxed=("noise",),
            n_components=n_components,
            n_features=n_features,
            n_factors=n_factors,
        )
    name, member = _name_of(loss), loss
    if name is None or not isinstance(member, ContrastiveLoss):
        return Guarantee(None, (), "linear_r2", "", f"no theorem is known for the loss {loss!r}")
    similarity, p = _similarity_traits(member)
    holders = (member, member.similarity)
    learned = any(hasattr(m, name) for m in holders for name in ("log_scale", "log_weights"))
    fixed = member.similarity.coordinate_weights(n_components).detach()
    equal = similarity == "weighted" or len(set(fixed.tolist())) == 1
    return derive_guarantee(
        beliefs,
        similarity=similarity,
        similarity_p=p,
        loss=name,
        potentials=_potentials_of(member),
        head=head,
        scale="learned" if learned or learns_size else "fixed",
        equal_weights=equal,
        relaxed=relaxations_of(member),
        linear_dynamics=not isinstance(member.dynamics, NetworkDynamics),
        full_matrix=isinstance(member, FullAnInfoNCE),
        weights=weights,
        weight_errors=weight_errors,
        n_components=n_components,
        n_features=n_features,
        n_factors=n_factors,
    )


def learns_size(encoder: nn.Module) -> bool:
    """Return whether an encoder has a head whose radius or side is learned."""
    names = [name.rpartition(".")[2] for name, _ in encoder.named_parameters()]
    return "log_radius" in names or "log_bound" in names


def learned_weights(loss: nn.Module, n_components: int) -> list[float] | None:
    """Return the learned weights of a loss, one per code; None if it has no such weights."""
    if not isinstance(loss, ContrastiveLoss) or isinstance(loss, FullAnInfoNCE):
        return None
    if _similarity_traits(loss)[0] != "weighted":
        return None
    weights: list[float] = loss.coordinate_weights(n_components).detach().tolist()
    return weights


def head_of(encoder: nn.Module, codes: Tensor) -> str:
    """Return where the codes of a user's own encoder live, as far as layers and codes show.

    The last layer decides; else codes of equal radius are on a sphere, if they differ at all by
    more than their radii do (the codes of an untrained encoder are often nearly constant).
    """
    last = [*encoder.modules()][-1]
    if isinstance(last, BoxHead | Straightening | nn.Sigmoid):
        return "box"
    if isinstance(last, SphereHead | PrincipalAxes):
        return "sphere"
    codes = codes.detach()
    radii, spread = codes.norm(dim=1), (codes - codes.mean(0)).norm(dim=1).mean()
    deviation = (radii - radii.mean()).abs().max()
    return "sphere" if bool(deviation < 1e-3 * torch.minimum(radii.mean(), spread)) else "free"


def _name_of(loss: nn.Module) -> str | None:
    if type(loss) is FullAnInfoNCE:
        return "aninfonce"
    named = {**LOSS_CLASSES, "alignuniform": AlignUniform}
    return next((name for name, kind in named.items() if type(loss) is kind), None)


def _similarity_traits(loss: ContrastiveLoss) -> tuple[str, float | None]:
    if isinstance(loss, FullAnInfoNCE):
        return "weighted", 2.0
    if loss.exponent is None:
        return "dot", None
    learned = getattr(loss.similarity, "log_weights", None)
    per_code = learned is not None and learned.ndim == 1
    if loss.exponent == 2 and (per_code or loss.factor_scale is not None):
        return "weighted", 2.0
    return "lp", loss.exponent


def _potentials_of(loss: ContrastiveLoss) -> str:
    """Return the kind of potentials that a loss has where it needs them.

    InfoNCE in one direction is invariant to the potential of its anchors, and to constants; other
    losses need both potentials, and a network on one side can at least be a constant.
    """
    kinds = [_potential_kind(module) for module in (loss.potential, loss.potential_pos)]
    if isinstance(loss, InfoNCE) and not loss.symmetric:
        return "learned" if kinds[1] == "learned" else "none"
    if set(kinds) == {"none"}:
        return "none"
    return "learned" if set(kinds) == {"learned"} else "constant"


def _potential_kind(module: nn.Module | None) -> str:
    if module is None:
        return "none"
    return "constant" if isinstance(module, ConstantPotential) else "learned"
