"""What `losses.py` compares: our losses, dense torch code, and the losses of other libraries.

Every method is a function of codes h and h_pos (B, n) that returns the same number. Policies:
"one way", h asks and the h_pos of all answer, as in the reference code; "symmetric", the mean of
both directions; "simclr", symmetric, on normalised codes, with negatives from both views.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize, softplus

from isolatent.contrast import (
    NCE,
    NWJ,
    ContrastiveLoss,
    Dot,
    InfoNCE,
    Lp,
    Similarity,
    SpectralContrastive,
)

__all__ = [
    "ENGINES",
    "GEOMETRIES",
    "LOSSES",
    "METHODS",
    "PEERS",
    "POLICIES",
    "Geometry",
    "Method",
    "N",
    "codes",
    "methods_for",
    "missing_peers",
    "oracle",
    "peer_versions",
]

N = 10
Value = Callable[[Tensor, Tensor], Tensor]
LOSSES: dict[str, type[ContrastiveLoss]] = {
    "InfoNCE": InfoNCE,
    "NCE": NCE,
    "SpectralContrastive": SpectralContrastive,
    "NWJ": NWJ,
}
POLICIES: dict[str, dict[str, Any]] = {
    "one way": {"symmetric": False},
    "symmetric": {"symmetric": True},
    "simclr": {"symmetric": True, "negatives_from": "both"},
}
ENGINES = ("numba", "blockwise", "dense")


@dataclass(frozen=True)
class Geometry:
    """A similarity: weights, and the power of the distance or None for the dot product."""

    name: str
    p: float | None
    weights: tuple[float, ...]

    def similarity(self) -> Similarity:
        return Dot(scale=self.weights[0]) if self.p is None else Lp(p=self.p, weights=self.weights)

    def scaled(self, h: Tensor, h_pos: Tensor) -> tuple[Tensor, Tensor]:
        """Codes whose unweighted similarity is the weighted one of h and h_pos."""
        w = torch.tensor(self.weights, dtype=h.dtype)
        if self.p is None:
            return h * w, h_pos
        return h * w ** (1 / self.p), h_pos * w ** (1 / self.p)


GEOMETRIES = {
    geometry.name: geometry
    for geometry in (
        Geometry("dot", None, (10.0,) * N),
        Geometry("L1", 1.0, (3.0,) * N),
        Geometry("L2", 2.0, (10.0,) * N),
        Geometry("L3", 3.0, (10.0,) * N),
        Geometry("p=2.5", 2.5, (10.0,) * N),
        Geometry("anisotropic", 2.0, tuple(torch.linspace(5, 25, N).tolist())),
    )
}


def codes(geometry: Geometry, batch: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Positive pairs that require gradients: on the sphere for the dot product, else in the box."""
    generator = torch.Generator().manual_seed(batch)
    noise = torch.randn(batch, N, generator=generator)
    if geometry.p is None:
        h = normalize(torch.randn(batch, N, generator=generator))
        h_pos = normalize(h + 0.1 * noise)
    else:
        h = torch.rand(batch, N, generator=generator)
        h_pos = h + 0.05 * noise
    return h.to(dtype).requires_grad_(), h_pos.to(dtype).requires_grad_()


# Ours


def ours(engine: str) -> Callable[[str, Geometry, str], Value]:
    def build(loss: str, geometry: Geometry, policy: str) -> Value:
        module = LOSSES[loss](geometry.similarity(), engine=engine, **POLICIES[policy])
        if policy == "simclr":
            return lambda h, h_pos: module(normalize(h), normalize(h_pos))
        return module

    return build


oracle = ours("dense")


# Dense code as one would write it


def naive_scores(geometry: Geometry, h: Tensor, h_pos: Tensor) -> Tensor:
    """All scores through the (B, B, n) differences, as the reference code of the papers does."""
    assert geometry.p is not None
    if len(set(geometry.weights)) == 1:
        norm = torch.norm(h.unsqueeze(1) - h_pos.unsqueeze(0), p=geometry.p, dim=-1)
        return -geometry.weights[0] * norm.pow(geometry.p)
    weights = torch.tensor(geometry.weights, dtype=h.dtype)
    return -(weights * (h.unsqueeze(1) - h_pos.unsqueeze(0)) ** geometry.p).sum(-1)


def torch_scores(geometry: Geometry, h: Tensor, h_pos: Tensor) -> Tensor:
    """All scores by a matrix product or `torch.cdist`."""
    h, h_pos = geometry.scaled(h, h_pos)
    if geometry.p is None:
        return h @ h_pos.T
    distance = torch.cdist(h, h_pos, p=geometry.p)
    return -distance if geometry.p == 1 else -(distance**geometry.p)


def loss_of_scores(loss: str, s: Tensor, symmetric: bool) -> Tensor:
    """The definitions of the losses, on the (B, B) scores with positives on the diagonal."""
    positive = s.diagonal()
    if loss == "InfoNCE":
        rows = s.logsumexp(1)
        return (0.5 * (rows + s.logsumexp(0)) if symmetric else rows).mean() - positive.mean()
    pairs = len(s) * (len(s) - 1)
    negative = s.masked_fill(torch.eye(len(s), dtype=torch.bool), -torch.inf)
    if loss == "NCE":
        return softplus(-positive).mean() + softplus(negative).sum() / pairs
    if loss == "SpectralContrastive":
        return (2 * negative).exp().sum() / pairs - 2 * positive.exp().mean()
    return negative.exp().sum() / pairs - positive.mean() - 1


def dense(
    scores: Callable[[Geometry, Tensor, Tensor], Tensor],
) -> Callable[[str, Geometry, str], Value]:
    def build(loss: str, geometry: Geometry, policy: str) -> Value:
        symmetric = policy == "symmetric"
        return lambda h, h_pos: loss_of_scores(loss, scores(geometry, h, h_pos), symmetric)

    return build


# Other libraries; InfoNCE only


def cebra(loss: str, geometry: Geometry, policy: str) -> Value:
    """CEBRA's criterion; the negatives it is given are the positives of all, as ours are."""
    criterions: Any = importlib.import_module("cebra.models.criterions")
    kind = "Cosine" if geometry.p is None else "Euclidean"  # squared, whatever its docstring says
    criterion = getattr(criterions, f"Fixed{kind}InfoNCE")(temperature=1.0)

    def value(h: Tensor, h_pos: Tensor) -> Tensor:
        h, h_pos = geometry.scaled(h, h_pos)
        out: Tensor = criterion(h, h_pos, h_pos)[0]
        return out

    return value


def metric_learning(name: str) -> Callable[[str, Geometry, str], Value]:
    """A loss of pytorch-metric-learning; SupCon with one positive for each anchor is InfoNCE."""

    def build(loss: str, geometry: Geometry, policy: str) -> Value:
        library: Any = importlib.import_module("pytorch_metric_learning")
        for part in ("losses", "distances", "reducers"):
            importlib.import_module(f"pytorch_metric_learning.{part}")
        p = geometry.p
        distance = (
            library.distances.DotProductSimilarity(normalize_embeddings=False)
            if p is None
            else library.distances.LpDistance(normalize_embeddings=False, p=p, power=p)
        )
        inner = getattr(library.losses, name)(
            temperature=1.0, distance=distance, reducer=library.reducers.MeanReducer()
        )
        wrapped = library.losses.SelfSupervisedLoss(inner, symmetric=False)
        return lambda h, h_pos: wrapped(*geometry.scaled(h, h_pos))

    return build


def lightly(loss: str, geometry: Geometry, policy: str) -> Value:
    """SimCLR's NT-Xent, on normalised codes."""
    module: Any = importlib.import_module("lightly.loss.ntx_ent_loss")
    value: Value = module.NTXentLoss(temperature=1 / geometry.weights[0])
    return value


def keops(loss: str, geometry: Geometry, policy: str) -> Value:
    """KeOps' symbolic matrices, compiled by g++ on first use."""
    lazy: Any = importlib.import_module("pykeops.torch").LazyTensor

    def value(h: Tensor, h_pos: Tensor) -> Tensor:
        u, v = geometry.scaled(h, h_pos)
        x, y, p = lazy(u.unsqueeze(1)), lazy(v.unsqueeze(0)), geometry.p
        if p is None:
            scores, positive = (x * y).sum(-1), (u * v).sum(-1)
        else:
            distance = (x - y).abs() if p == 1 else (x - y) ** 2
            if p not in (1, 2):
                distance = (x - y).abs() ** (int(p) if p == int(p) else p)
            scores, positive = -distance.sum(-1), -((u - v).abs() ** p).sum(-1)
        return (scores.logsumexp(dim=1).view(-1) - positive).mean()

    return value


@dataclass(frozen=True)
class Method:
    """A way to compute a loss.

    Attributes:
        name: What tables call it.
        build: From the names of a loss, a geometry and a policy to the function.
        requires: The module it needs and the name pip knows its project by.
        order: Time and memory grow as this power of the batch.
        bytes: Guess of the memory over batch^order, until a smaller batch has been measured.
    """

    name: str
    build: Callable[[str, Geometry, str], Value]
    requires: tuple[str, str] | None = None
    order: int = 2
    bytes: float = 0.0


PML = ("pytorch_metric_learning.losses", "pytorch-metric-learning")
METHODS = {
    method.name: method
    for method in (
        Method("numba", ours("numba")),
        Method("blockwise", ours("blockwise")),
        Method("dense", ours("dense"), bytes=4 * N * 5),
        Method("naive (B,B,n)", dense(naive_scores), bytes=4 * N * 4),
        Method("plain torch", dense(torch_scores), bytes=4 * 5),
        Method("CEBRA", cebra, ("cebra.models.criterions", "cebra"), bytes=4 * 5),
        Method("PML SupCon", metric_learning("SupConLoss"), PML, bytes=60),
        Method("PML NTXent", metric_learning("NTXentLoss"), PML, order=3, bytes=4 * 6),
        Method("lightly", lightly, ("lightly.loss.ntx_ent_loss", "lightly"), bytes=80),
        Method("KeOps", keops, ("pykeops.torch", "pykeops")),
    )
}
PEERS = ("plain torch", "CEBRA", "PML SupCon", "PML NTXent", "lightly", "KeOps")


def methods_for(loss: str, geometry: Geometry, policy: str) -> list[str]:
    """Names of the methods that compute this very number."""
    if policy == "simclr":
        return ["numba", "lightly"] if loss == "InfoNCE" and geometry.p is None else []
    if policy == "symmetric":
        return ["numba", "plain torch"] if loss == "InfoNCE" else []
    names = [*ENGINES, "plain torch"]
    if geometry.p is not None:  # for the dot product the reference code is plain torch
        names.append("naive (B,B,n)")
    if loss == "InfoNCE":
        names += ["KeOps", "PML SupCon", "PML NTXent"]
        if geometry.p in (None, 2.0):
            names.append("CEBRA")
    return names


def missing_peers() -> dict[str, str]:
    """Names of methods whose library cannot be imported, with the reason."""
    missing = {}
    for method in METHODS.values():
        if method.requires is None:
            continue
        try:
            importlib.import_module(method.requires[0])
        except Exception as error:  # a broken library may raise anything
            missing[method.name] = f"{type(error).__name__}: {error}"
    return missing


def peer_versions() -> dict[str, str]:
    """Versions of the peers that are installed, importable or not."""
    found = {}
    for project in {method.requires[1] for method in METHODS.values() if method.requires}:
        try:
            found[project] = metadata.version(project)
        except metadata.PackageNotFoundError:
            found[project] = "not installed"
    return dict(sorted(found.items()))
