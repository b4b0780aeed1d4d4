"""Beliefs about a world, and the model that suits them: similarity, head and potentials."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from isolatent.checks import check_one_of, check_real, check_scale

__all__ = [
    "CONDITIONALS",
    "HEADS",
    "MARGINALS",
    "NAMED_RELAXATIONS",
    "POTENTIALS",
    "RELAXATIONS",
    "SPACES",
    "Beliefs",
    "Uncovered",
    "check_relaxations",
]

SPACES = ("sphere", "box", "euclidean", "cubegrid", "hollowball")
MARGINALS = ("uniform", "normal", "unknown")
CONDITIONALS = ("vmf", "normal", "laplace", "gennorm", "anisotropic")
HEADS = ("sphere", "box", "free")
POTENTIALS = ("none", "constant", "learned")
RELAXATIONS = ("pairing", "anchor_scale", "factor_scale", "marginal", "dynamics")
NAMED_RELAXATIONS = (*RELAXATIONS, "noise")  # with those that "auto" does not try

# Marginal and conditional where only the space is declared.
DEFAULTS = {
    "sphere": ("uniform", "vmf"),
    "box": ("uniform", "normal"),
    "euclidean": ("normal", "normal"),
    "cubegrid": ("uniform", "normal"),
    "hollowball": ("uniform", "normal"),
}
EXPONENTS = {"normal": 2.0, "laplace": 1.0, "anisotropic": 2.0}


class Uncovered(str):
    """The description of a space or distribution that no theorem names.

    :meth:`Beliefs.of` uses it for products of spaces, independent parts, grids of factors and
    users' own classes; a guarantee derived from it says in words what is not covered.
    """

    __slots__ = ()


@dataclass(frozen=True)
class Beliefs:
    r"""Beliefs about the process that generated the data.

    The similarity, the output head, the potentials that a loss needs and the guarantee follow from
    the beliefs: estimators, baselines, experiments and the command line all use this class.

    Args:
        space: Space of the latents, one of ``"sphere"``, ``"box"``, ``"euclidean"``,
            ``"cubegrid"`` and ``"hollowball"``.
        marginal: Distribution of the anchors: ``"uniform"``, ``"normal"`` or ``"unknown"``. By
            default ``"uniform"``, and ``"normal"`` on R^n, where no uniform distribution exists.
        conditional: Distribution of positives around their anchors: ``"vmf"``, on the sphere only;
            ``"normal"``; ``"laplace"``; ``"gennorm"``, with density
            :math:`\propto e^{-\lambda \sum_k |z'_k - z_k|^p}`; or ``"anisotropic"``, a normal with
            one width per factor. By default ``"vmf"`` on the sphere and ``"normal"`` elsewhere.
            On the sphere, ``"normal"``, ``"laplace"`` and ``"gennorm"`` mean draws around the
            anchor that are projected back to the sphere; no theorem covers them.
        p: Exponent of ``"gennorm"``, at least 1.
        weights: Precisions of ``"anisotropic"``, one per factor, where they are known.

    Example:
        >>> Beliefs("box")
        Beliefs(space='box', marginal='uniform', conditional='normal', p=None, weights=None)
        >>> Beliefs("box", conditional="vmf")
        Traceback (most recent call last):
        ValueError: conditional 'vmf' goes with space 'sphere', got space 'box'
    """

    space: str = "sphere"
    marginal: str | None = None
    conditional: str | None = None
    p: float | None = None
    weights: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        space = _check_name("space", self.space, SPACES)
        marginal, conditional = DEFAULTS.get(space, ("unknown", "normal"))
        object.__setattr__(self, "marginal", marginal if self.marginal is None else self.marginal)
        given = self.conditional
        object.__setattr__(self, "conditional", conditional if given is None else given)
        _check_name("marginal", self.marginal, MARGINALS)
        _check_name("conditional", self.conditional, CONDITIONALS)
        covered = not isinstance(space, Uncovered)
        if self.conditional == "vmf" and space != "sphere" and covered:
            raise ValueError(f"conditional 'vmf' goes with space 'sphere', got space {space!r}")
        if self.conditional != "gennorm" and self.p is not None:
            raise ValueError(
                f"p goes with conditional 'gennorm' alone, got p={self.p!r} with "
                f"{self.conditional!r}"
            )
        if self.conditional == "gennorm":
            if self.p is None:
                raise ValueError("p must be a number >= 1 with conditional 'gennorm', got None")
            object.__setattr__(self, "p", check_real("p", self.p, at_least=1))
        if self.weights is not None:
            if self.conditional != "anisotropic":
                raise ValueError(
                    f"weights go with conditional 'anisotropic' alone, got {self.conditional!r}"
                )
            weights = check_scale("weights", self.weights)
            if isinstance(weights, float):
                raise TypeError(f"weights must have one number per factor, got {self.weights!r}")
            object.__setattr__(self, "weights", weights)

    @classmethod
    def of(cls, world: Any) -> Beliefs:
        """Return the beliefs that hold in a world.

        Spaces and distributions that no theorem names are described in words: see
        :class:`Uncovered`.

        Args:
            world: A :class:`isolatent.World`, or a pair source with one, such as
                :class:`isolatent.WorldPairs` or :class:`isolatent.pairs.FactorPairs`.

        Example:
            >>> import isolatent as iso
            >>> world = iso.World(iso.Box(3), iso.Uniform(), iso.Laplace(0.1), iso.Identity())
            >>> Beliefs.of(world).conditional
            'laplace'
            >>> space = iso.Product(iso.Box(2), iso.Sphere(2))
            >>> steps = iso.Independent(iso.Normal(0.1), iso.VonMisesFisher(5.0))
            >>> world = iso.World(space, iso.Uniform(), steps, iso.Identity())
            >>> Beliefs.of(world).space
            'Product(Box(n=2, low=0.0, high=1.0), Sphere(n=2, radius=1.0))'
        """
        from isolatent.theory.world_beliefs import beliefs_of  # which imports worlds, and torch

        return beliefs_of(world)

    def __str__(self) -> str:
        power = "" if self.p is None else f" with p = {self.p:g}"
        return f"{self.space}, {self.marginal} marginal, {self.conditional} conditional{power}"

    @property
    def exponent(self) -> float | None:
        r"""Exponent p of a density :math:`\propto e^{-\lambda \sum_k |z'_k - z_k|^p}`, or None."""
        return self.p if self.conditional == "gennorm" else EXPONENTS.get(str(self.conditional))

    @property
    def similarity(self) -> str:
        """Similarity whose e^s has the shape of the conditional: dot, lp or weighted.

        Example:
            >>> Beliefs("sphere").similarity, Beliefs("box", conditional="laplace").similarity
            ('dot', 'lp')
        """
        return {"vmf": "dot", "anisotropic": "weighted"}.get(str(self.conditional), "lp")

    @property
    def head(self) -> str:
        """Output head whose codes live in a space like that of the latents.

        Example:
            >>> Beliefs("box").head, Beliefs("euclidean").head
            ('box', 'free')
        """
        return self.space if self.space in HEADS else "free"

    def potentials(self, loss: str = "infonce") -> str:
        """Return the simplest potentials with which a loss has its optimum at the true factors.

        Args:
            loss: Name of the loss, as ``ContrastiveICA`` takes it.

        Example:
            >>> Beliefs("sphere").potentials("nce"), Beliefs("box", "unknown").potentials()
            ('constant', 'learned')
        """
        if self.marginal != "uniform":
            return "learned"
        if loss not in ("nce", "scl", "nwj"):
            return "none"
        return "constant" if self.conditional == "vmf" else "learned"


def check_relaxations(name: str, value: Any) -> tuple[str, ...]:
    """Return names of relaxations, each once and in the order of ``NAMED_RELAXATIONS``.

    Example:
        >>> check_relaxations("relaxed", ["dynamics", "pairing"])
        ('pairing', 'dynamics')
        >>> check_relaxations("relaxed", ["tails"])
        Traceback (most recent call last):
        ValueError: relaxed must hold names among 'pairing', 'anchor_scale', ... got ['tails']
    """
    known = ", ".join(map(repr, NAMED_RELAXATIONS))
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise TypeError(f"{name} must be a sequence of names among {known}, got {value!r}")
    names = list(value)
    if any(one not in NAMED_RELAXATIONS for one in names):
        raise ValueError(f"{name} must hold names among {known}, got {names!r}")
    return tuple(one for one in NAMED_RELAXATIONS if one in names)


def _check_name(name: str, value: Any, allowed: tuple[str, ...]) -> str:
    return value if isinstance(value, Uncovered) else check_one_of(name, value, allowed)
