"""Random problems, their evaluation by an engine, and how far rounding may take the result."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from isolatent.contrast import kernels
from isolatent.contrast.kernels import PairwiseScores
from isolatent.contrast.kernels.pairwise_scores import dense_scores

# What numba compiles in the fast tests: each form and each reduction in both precisions, but not
# each with each, which takes 90 compilations of 4 s (that is the slow test). A form, a reduction
# and the multipliers of the rows share no code beyond the skeleton.
COMPILED = {
    torch.float32: {
        None: "row_logsumexp",
        1: "both_logsumexp",
        1.5: "row_softplus",
        1.7: "both_logsumexp",
        2: "row_logsumexp",
        2.5: "both_logsumexp",
        3: "row_softplus",
        4: "row_logsumexp",
    },
    torch.float64: {None: "both_logsumexp", 1: "row_softplus", 1.7: "row_logsumexp"},
}
SCALED = {torch.float32: (None, 1, 1.7, 3, 4), torch.float64: (None, 1, 1.7)}
INPUTS = ("u", "v", "weights", "row_potential", "column_potential", "row_scale")

# Terms below e^-64 = 1.6e-28 count as 0 in float32, which is ε times this.
NEGLIGIBLE = 2e-21


@dataclass(frozen=True)
class Problem:
    """Inputs of a reduction and the gradients of its values."""

    reduction: str
    p: float | None
    u: Tensor
    v: Tensor
    weights: Tensor | None = None
    row_potential: Tensor | None = None
    column_potential: Tensor | None = None
    row_scale: Tensor | None = None
    skip: Tensor | None = None

    @property
    def upstream(self) -> tuple[Tensor, ...]:
        """Positive, so that terms do not cancel more than their signs make them."""
        rows, columns = len(self.u), len(self.v)
        g = 0.5 + torch.arange(rows) % 7 / 7
        h = 0.5 + torch.arange(columns) % 5 / 5
        return (g, h) if self.reduction == "both_logsumexp" else (g,)

    def to(self, dtype: torch.dtype) -> "Problem":
        given = {k: getattr(self, k) for k in INPUTS if getattr(self, k) is not None}
        return replace(self, **{k: x.to(dtype) for k, x in given.items()})

    def scores(self, **inputs: Tensor) -> PairwiseScores:
        """The scores, of other inputs where they are given."""
        names = PairwiseScores._fields
        return PairwiseScores(**({k: getattr(self, k) for k in names} | inputs))


def draw(
    reduction: str,
    p: float | None,
    rows: int,
    columns: int,
    n: int,
    *,
    seed: int = 0,
    scale: float = 1.0,
    weighted: bool = True,
    potentials: bool = True,
    scaled: bool = False,
    skip: bool = False,
) -> Problem:
    """A random problem in float64, exactly representable in float32."""
    r = torch.Generator().manual_seed(seed)
    v = scale * torch.randn(columns, n, generator=r)
    u = v[torch.arange(rows) % columns] + 0.5 * scale * torch.randn(rows, n, generator=r)
    w = torch.randn(n, generator=r).mul(0.3).exp()
    a, b = torch.randn(rows, generator=r), torch.randn(columns, generator=r)
    left_out = torch.randint(-1, columns, (rows,), generator=r)
    m = torch.randn(rows, generator=r).mul(0.5).exp()
    return Problem(
        reduction,
        p,
        u,
        v,
        w if weighted else None,
        a if potentials else None,
        b if potentials else None,
        m if scaled else None,
        left_out if skip else None,
    ).to(torch.float64)


def evaluate(problem: Problem, engine: str) -> dict[str, Tensor]:
    """Values and gradients by name."""
    given = {
        k: getattr(problem, k).clone().requires_grad_()
        for k in INPUTS
        if getattr(problem, k) is not None
    }
    values = getattr(kernels, problem.reduction)(problem.scores(**given), engine)
    values = values if isinstance(values, tuple) else (values,)
    gradients = torch.autograd.grad(
        values, list(given.values()), [g.to(problem.u.dtype) for g in problem.upstream]
    )
    results = {f"value {k}": x.detach() for k, x in enumerate(values)}
    return results | dict(zip(given, gradients, strict=True))


def rounding(problem: Problem, scores: bool = True) -> dict[str, Tensor]:
    """What one rounding of each score does to each result, for ε = 1, in float64.

    A score carries S_ij = 1 + Σ_k |terms| + |a_i| + |b_j| roundings. So does c_ij = dL/ds_ij
    relative to its size, with the mean E_i of S over its row (or column) for the normalisation; a
    gradient to θ is Σ_ij c_ij ∂s_ij/∂θ, and its error at most Σ_ij |c_ij| (S_ij + E_i) |∂s_ij/∂θ|.
    Without `scores` S is 1, and what remains is the magnitude of the terms.
    """
    problem = problem.to(torch.float64)
    u, v, p, w, a, b, m, _ = problem.scores()
    m = torch.ones_like(u[:, 0]) if m is None else m
    w = torch.ones_like(u[0]) if w is None else w
    x = (u[:, None] - v).abs()
    terms = w * (u[:, None] * v).abs() if p is None else w * x**p
    d = terms.sum(-1)
    size = 1 + m[:, None] * d
    size = size if a is None else size + a.abs()[:, None]
    size = size if b is None else size + b.abs()
    size = size if scores else torch.ones_like(size)
    s = dense_scores(problem.scores())
    g = [k.double() for k in problem.upstream]
    if problem.reduction == "row_softplus":
        total = s.sigmoid()
        values = [(total * size + torch.logaddexp(s, s.new_zeros(())) + NEGLIGIBLE).sum(1)]
        spread = g[0][:, None] * total * size
    else:
        values, spread = [], torch.zeros_like(s)
        for dim in (1, 0)[: len(g)]:
            share = torch.softmax(s, dim).nan_to_num(0)
            mean = (share * size).sum(dim, keepdim=True)
            values.append(mean.squeeze(dim))
            spread += g[1 - dim].unsqueeze(dim) * share * (size + mean)
    spread = spread + NEGLIGIBLE
    scaled = m[:, None] * spread
    if p is None:
        errors = {
            "u": w * (scaled @ v.abs()),
            "v": w * (scaled.mT @ u.abs()),
            "weights": ((scaled @ v.abs()) * u.abs()).sum(0),
        }
    else:
        slope = scaled[..., None] * p * x ** (p - 1)
        to_u, to_v = slope.sum(1), slope.sum(0)
        centre = u.mean(0)  # numba gets the weights' gradient from those of u and v
        moment = (to_u * (u - centre).abs()).sum(0) + (to_v * (v - centre).abs()).sum(0)
        errors = {"u": w * to_u, "v": w * to_v, "weights": moment / p}
    errors |= {"row_potential": spread.sum(1), "column_potential": spread.sum(0)}
    errors["row_scale"] = (spread * d).sum(1)
    return {f"value {k}": x for k, x in enumerate(values)} | errors


def excess(problem: Problem, engine: str, dtype: torch.dtype) -> dict[str, float]:
    """Errors of an engine against the oracle in float64, in units of ε · `rounding`."""
    problem = problem.to(dtype)
    got, want = evaluate(problem, engine), evaluate(problem.to(torch.float64), "dense")
    unit = rounding(problem)
    eps = torch.finfo(dtype).eps
    out = {}
    for name, y in want.items():
        x = got[name].double()
        assert x.isfinite().eq(y.isfinite()).all(), name
        error = torch.where(x == y, 0.0, (x - y).abs())  # equal infinities
        out[name] = float((error / (eps * unit[name]).clamp_min(1e-300)).max())
    return out


def difference(problem: Problem, engine: str, dtype: torch.dtype) -> dict[str, float]:
    """Errors of an engine against the oracle in float64, over the largest magnitude."""
    problem = problem.to(dtype)
    got, want = evaluate(problem, engine), evaluate(problem.to(torch.float64), "dense")
    unit = rounding(problem, scores=False)
    out = {}
    for name, y in want.items():
        x = got[name].double()
        assert x.isfinite().eq(y.isfinite()).all(), name
        error = torch.where(x == y, 0.0, (x - y).abs())
        # Terms that cancel leave their own magnitude as the scale.
        finite = y[y.isfinite()].abs()
        scale = float(torch.cat([finite, unit[name].ravel()]).max())
        out[name] = float(error.max()) / max(scale, 1e-20)
    return out


@pytest.fixture(scope="session")
def lab() -> SimpleNamespace:
    """The functions above (test files cannot import from one another)."""
    functions: list[Callable[..., object]] = [draw, evaluate, excess, difference, Problem]
    named = {f.__name__: f for f in functions}
    return SimpleNamespace(COMPILED=COMPILED, SCALED=SCALED, INPUTS=INPUTS, **named)
