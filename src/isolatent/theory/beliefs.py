"""What is declared about a world and a model, and whether the theorems have room for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from isolatent.checks import check_one_of, check_real

__all__ = [
    "CONDITIONALS",
    "HEADS",
    "LOSSES",
    "MARGINALS",
    "POTENTIALS",
    "SIMILARITIES",
    "SPACES",
    "Setting",
    "check_beliefs",
    "matching_head",
    "matching_similarity",
]

SPACES = ("sphere", "box", "euclidean", "cubegrid", "hollowball")
MARGINALS = ("uniform", "normal", "unknown")
CONDITIONALS = ("vmf", "normal", "laplace", "gennorm", "anisotropic")
SIMILARITIES = ("dot", "lp", "weighted")
LOSSES = ("infonce", "aninfonce", "nce", "scl", "nwj", "alignuniform")
HEADS = ("sphere", "box", "free")
POTENTIALS = ("none", "constant", "learned")

RATIO_LOSSES = ("nce", "scl", "nwj")  # at whose optimum e^s is the density ratio, constant included

_EXPONENTS = {"normal": 2.0, "laplace": 1.0, "anisotropic": 2.0}


def check_beliefs(space: str, marginal: str, conditional: str, p: float | None = None) -> None:
    """Raise ValueError for unknown names and for beliefs that contradict each other.

    Normal, Laplace and generalised normal conditionals are allowed on the sphere, where they mean
    draws around the anchor projected back to it; no theorem covers them there.

    Args:
        space: One of ``SPACES``.
        marginal: One of ``MARGINALS``; ``"unknown"`` stands for anything.
        conditional: One of ``CONDITIONALS``; ``"vmf"`` goes with the sphere alone.
        p: The exponent of ``"gennorm"``, at least 1, and of no other.

    Example:
        >>> check_beliefs("box", "uniform", "gennorm", p=3)
        >>> check_beliefs("box", "uniform", "vmf")
        Traceback (most recent call last):
        ValueError: conditional 'vmf' goes with space 'sphere', got space 'box'
    """
    check_one_of("space", space, SPACES)
    check_one_of("marginal", marginal, MARGINALS)
    _exponent(conditional, p)
    if conditional == "vmf" and space != "sphere":
        raise ValueError(f"conditional 'vmf' goes with space 'sphere', got space {space!r}")


def matching_similarity(conditional: str, p: float | None = None) -> tuple[str, float | None]:
    """The similarity whose e^s has the shape of the conditional, and its exponent if it has one.

    Args:
        conditional: One of ``CONDITIONALS``.
        p: The exponent of ``"gennorm"``.

    Example:
        >>> matching_similarity("laplace"), matching_similarity("vmf")
        (('lp', 1.0), ('dot', None))
        >>> matching_similarity("anisotropic")
        ('weighted', 2.0)
    """
    exponent = _exponent(conditional, p)
    return {"vmf": "dot", "anisotropic": "weighted"}.get(conditional, "lp"), exponent


def matching_head(space: str) -> str:
    """The output head whose codes live in a space like that of the latents.

    Example:
        >>> matching_head("box"), matching_head("euclidean")
        ('box', 'free')
    """
    check_one_of("space", space, SPACES)
    return space if space in HEADS else "free"


def _exponent(conditional: str, p: float | None) -> float | None:
    """The p of the conditional's density e^(-λ Σ|z' - z|^p); None for the vMF."""
    check_one_of("conditional", conditional, CONDITIONALS)
    if conditional != "gennorm":
        if p is not None:
            raise ValueError(
                f"p goes with conditional 'gennorm' alone, got p={p!r} with {conditional!r}"
            )
        return _EXPONENTS.get(conditional)
    if p is None:
        raise ValueError("p must be a number >= 1 with conditional 'gennorm', got None")
    return check_real("p", p, at_least=1)


@dataclass(frozen=True)
class Setting:
    """Beliefs about the world and the choices of the model, checked and complete.

    Attributes:
        p: The exponent of the conditional; None for the vMF.
        similarity_p: The exponent of the similarity; None for the dot product.
    """

    space: str
    marginal: str
    conditional: str
    p: float | None
    similarity: str
    similarity_p: float | None
    loss: str
    potentials: str
    head: str

    @classmethod
    def complete(
        cls,
        space: str,
        marginal: str,
        conditional: str,
        *,
        p: float | None,
        similarity: str | None,
        similarity_p: float | None,
        loss: str,
        potentials: str,
        head: str | None,
    ) -> Setting:
        """Check everything, and take what is None from the beliefs."""
        check_beliefs(space, marginal, conditional, p)
        check_one_of("loss", loss, LOSSES)
        check_one_of("potentials", potentials, POTENTIALS)
        matching, exponent = matching_similarity(conditional, p)
        if similarity is None:
            similarity = "weighted" if loss == "aninfonce" else matching
        check_one_of("similarity", similarity, SIMILARITIES)
        own = {"dot": None, "lp": 2.0 if exponent is None else exponent, "weighted": 2.0}[
            similarity
        ]
        if similarity_p is not None:
            given = check_real("similarity_p", similarity_p, at_least=1)
            if similarity != "lp" and given != own:
                raise ValueError(
                    f"similarity_p must be {own} with similarity {similarity!r}, got {given:g}"
                )
            own = given
        return cls(
            space=space,
            marginal=marginal,
            conditional=conditional,
            p=exponent,
            similarity=similarity,
            similarity_p=own,
            loss=loss,
            potentials=potentials,
            head=matching_head(space) if head is None else check_one_of("head", head, HEADS),
        )

    @property
    def varying_normaliser(self) -> bool:
        """Whether the conditional's normaliser depends on the anchor.

        The faces of a box cut off more of some conditionals than of others, and on the sphere one
        with unequal weights is wider around some anchors. Only the vMF on the sphere and
        conditionals on R^n look the same from everywhere.
        """
        return self.space == "box" or (self.space == "sphere" and self.conditional == "anisotropic")

    @property
    def open_rotation(self) -> str:
        """Why the axes of the codes are open, where nothing but the axes of a norm could fix them.

        Distances with p = 2 are the same after a rotation, be they the conditional's or the
        similarity's; then only the faces of a box tell axes apart.
        """
        if self.space == "sphere" or self.head != "free" or 2 not in (self.p, self.similarity_p):
            return ""
        whose = "conditional" if self.p == 2 else "similarity"
        return (
            f"the {whose} is the same after a rotation, and a free head has no faces: "
            "each factor by itself (MCC) is not to be expected"
        )

    @property
    def similarity_name(self) -> str:
        """The similarity in words."""
        return _in_words(self.similarity, self.similarity_p)

    def gaps(self, n: int | None, m: int | None) -> Iterator[str]:
        """The assumptions that fail for n codes of m observed dimensions, the world's first."""
        if n is not None and m is not None and n > m:
            yield f"{n} factors cannot be mixed injectively into {m} dimensions"
        yield from self._world_gaps(n)
        yield from self._similarity_gaps()
        head = matching_head(self.space)
        if self.head != head:
            output = {"sphere": "on a sphere", "box": "in a convex body"}.get(self.space, "in R^n")
            yield f"the codes must live {output}: a {head} head instead of a {self.head} one"
        yield from self._loss_gaps()

    def _world_gaps(self, n: int | None) -> Iterator[str]:
        if self.space == "cubegrid" or (self.space == "sphere" and n == 1):  # two points
            yield "the theorems need a connected latent space; on a disconnected one none is proven"
        if self.space == "hollowball":
            yield "the theorems need a sphere or a convex latent space; a hollow ball is not convex"
        if self.space == "euclidean" and self.marginal == "uniform":
            yield "a uniform marginal does not exist on an unbounded space"
        if self.marginal != "uniform" and self.potentials != "learned":
            yield "the theorems need a uniform marginal, or learned potentials"
        if self.space == "sphere" and self.conditional not in ("vmf", "anisotropic"):
            yield (
                "the theorems on the sphere need a vMF or anisotropic conditional, "
                f"not a projected {self.conditional} one"
            )

    def _similarity_gaps(self) -> Iterator[str]:
        if self.loss == "aninfonce" and self.similarity != "weighted":
            yield (
                "AnInfoNCE needs a similarity with one weight per dimension, "
                f"not {self.similarity_name}"
            )
        if self.conditional == "anisotropic":
            matches = self.similarity == "weighted"
        elif self.conditional == "vmf":  # on the unit sphere |u - v|² = 2 - 2 u·v
            matches = self.similarity == "dot" or self.similarity_p == 2
        else:  # with p = 2 each dimension may also have a learned weight
            matches = self.similarity_p == self.p
        if not matches:
            p = self.p if self.conditional == "gennorm" else None
            needed = _in_words(*matching_similarity(self.conditional, p))
            yield (
                f"the similarity must match the {self.conditional} conditional: "
                f"{needed} instead of {self.similarity_name}"
            )

    def _loss_gaps(self) -> Iterator[str]:
        if self.loss == "alignuniform":
            yield (
                "the theorems need the optimum of InfoNCE, which alignment and uniformity share "
                "only at weight 1/2 and with infinitely many negatives"
            )
        if self.loss in RATIO_LOSSES and self.potentials != "learned":
            if self.varying_normaliser:
                yield (
                    f"{self.loss.upper()} needs learned potentials for the conditional's "
                    "normaliser, which is not the same around every anchor"
                )
            if self.potentials == "none":
                yield (
                    f"{self.loss.upper()} needs a constant or learned potential "
                    "for the conditional's normaliser"
                )


def _in_words(similarity: str, p: float | None) -> str:
    if similarity == "dot":
        return "the dot product"
    return f"Lp with p = {p:g}" + (
        " and one weight per dimension" if similarity == "weighted" else ""
    )
