"""Cells of an experiment whose world is a set of images with known factors."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Self

import torch
from pydantic import Field, field_serializer, model_validator
from torch import nn

from isolatent.baselines import AdaGVAE, AdaMLVAE, BetaVAE, SlowVAE
from isolatent.contrast import AlignUniform
from isolatent.datasets import (
    FactorWorld,
    LaplaceTransitions,
    Sprites,
    UniformFactorChange,
    load_dsprites,
    read_transitions,
    synthetic_transitions,
)
from isolatent.encoders import BoxHead
from isolatent.evaluation.disentanglement.suite import METRICS
from isolatent.experiments.cells import CellFields, Relax, Spec, one_of
from isolatent.files import digest_file
from isolatent.pairs import FactorPairs
from isolatent.theory import Beliefs, Guarantee, derive_guarantee
from isolatent.training import ContrastiveICA, Recipe
from isolatent.training.assembly import IMAGE_ENCODERS
from isolatent.training.axis_search import AXES
from isolatent.training.relaxations import AUTO, needs_potentials

__all__ = [
    "IMAGE_METRICS",
    "METHODS",
    "ImageCell",
    "ImageModelSpec",
    "ImageWorldSpec",
    "check_recipe_of",
]

IMAGE_SETS = ("sprites", "dsprites")
PAIR_TYPES = ("uni", "lap", "nat")
CONTRASTIVE = ("alignuniform", "infonce", "nce", "scl", "nwj")
CODE_SPACES = ("euclidean", "box")
VAES = {"beta_vae": BetaVAE, "slow_vae": SlowVAE, "ada_gvae": AdaGVAE, "ada_mlvae": AdaMLVAE}
CELL_ENCODERS = ("conv", "pooled")
UNDECLARED = "default"  # ContrastiveICA, to which nothing but the number of codes is declared
METHODS = (*CONTRASTIVE, UNDECLARED, *VAES)
VAE_PARAMETERS = ("max_steps", "batch_size", "learning_rate")
IMAGE_METRICS = tuple(METRICS)


class ImageWorldSpec(Spec):
    """The images of a cell and how pairs of them are drawn.

    Attributes:
        images: ``"sprites"``, rendered by this package, or ``"dsprites"``, the original file, read
            from the directory that the environment variable ``ISOLATENT_DATA`` names.
        pairs: The transitions between the factors of a pair: ``"uni"``
            (:class:`~isolatent.datasets.UniformFactorChange`), ``"lap"``
            (:class:`~isolatent.datasets.LaplaceTransitions`) or ``"nat"``
            (:class:`~isolatent.datasets.RecordedTransitions`).
        rate: The rate of ``"lap"`` transitions, by default 1.
        transitions: The CSV file of ``"nat"`` transitions. A relative path is looked up in the
            directory of the TOML file, then in the current directory. Results store the file's name
            and the SHA-256 of its contents, not its path. By default
            :func:`~isolatent.datasets.synthetic_transitions` are used, and results say so.
        continuous: Whether position and scale of ``"nat"`` pairs take values between those of the
            grid.
    """

    images: Annotated[str, one_of(IMAGE_SETS)]
    pairs: Annotated[str, one_of(PAIR_TYPES)]
    rate: float | None = Field(default=None, gt=0)
    transitions: str | None = None
    continuous: bool = False

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        if self.pairs != "nat" and (self.continuous or self.transitions is not None):
            raise ValueError(f"continuous and transitions require pairs 'nat', got {self.pairs!r}")
        if self.pairs != "lap" and self.rate is not None:
            raise ValueError(f"rate requires pairs 'lap', got {self.pairs!r}")
        if self.continuous and self.images != "sprites":
            raise ValueError(f"continuous requires images 'sprites', got {self.images!r}")
        return self

    @field_serializer("transitions", when_used="json-unless-none")
    def _name_and_digest(self, transitions: str) -> str:
        """Return the name of the file and the SHA-256 of its contents, without its directory.

        A text that is not the path of a file, such as this function's own result read back from a
        record, is returned unchanged but for the directory.
        """
        path = Path(transitions).expanduser()
        if not path.is_file():
            return path.name
        return f"{path.name} sha256:{digest_file(path)}"

    def build(self) -> FactorPairs:
        """Return the source of pairs; its attribute ``world`` holds the images."""
        world: FactorWorld = Sprites() if self.images == "sprites" else load_dsprites()
        if self.pairs == "uni":
            return FactorPairs(world, UniformFactorChange())
        if self.pairs == "lap":
            return FactorPairs(world, LaplaceTransitions(1.0 if self.rate is None else self.rate))
        if self.transitions is None:
            transitions = synthetic_transitions()
        else:
            transitions = read_transitions(os.path.expanduser(self.transitions))
        return FactorPairs(world, transitions, continuous=self.continuous)

    def beliefs(self) -> Beliefs:
        """Return what is known of the world without reading any file."""
        return Beliefs.of(
            self.model_copy(update={"images": "sprites", "transitions": None}).build()
        )


class ImageModelSpec(Spec):
    """The model that a cell trains on images.

    Attributes:
        method: ``"alignuniform"`` (L_AU), ``"infonce"``, ``"nce"``, ``"scl"`` or ``"nwj"`` for a
            contrastive encoder with declared beliefs; ``"default"`` for InfoNCE without any: free
            codes, and relaxations and axes as :class:`~isolatent.ContrastiveICA` chooses them; or
            the name of a VAE: ``"beta_vae"``, ``"slow_vae"``, ``"ada_gvae"`` or ``"ada_mlvae"``.
        n_components: Number of codes.
        space: Space of the codes of a contrastive encoder: ``"euclidean"``, where they are not
            bounded, as by default, or ``"box"``, with a learned bound for each code.
        p: The exponent of the norm in contrastive losses, by default 1.
        alpha: The weight of uniformity in L_AU.
        encoder: The encoder of contrastive losses: ``"conv"``, the same as that of the VAEs, or
            ``"pooled"``, a perceptron on downsampled images, at a small fraction of the cost.
        relax: Assumptions that InfoNCE relaxes, as in ``ContrastiveICA``; by default none.
        axes: How codes of contrastive losses are aligned with single factors after training, as in
            ``ContrastiveICA``; by default not at all.
        beta: The weight of the KL term of a VAE, by default that of its class.
    """

    method: Annotated[str, one_of(METHODS)]
    n_components: int = Field(default=10, ge=2)
    space: Annotated[str, one_of(CODE_SPACES)] | None = None
    p: float | None = Field(default=None, ge=1)
    alpha: float | None = Field(default=None, gt=0, lt=1)
    encoder: Annotated[str, one_of(CELL_ENCODERS)] = "conv"
    relax: Relax | None = None
    axes: Annotated[str, one_of(AXES)] | None = None
    beta: float | None = Field(default=None, gt=0)

    @model_validator(mode="after")
    def _check_parameters_of_method(self) -> Self:
        if self.alpha is not None and self.method != "alignuniform":
            raise ValueError(f"alpha requires method 'alignuniform', got {self.method!r}")
        if self.alpha is None and self.method == "alignuniform":
            raise ValueError("alpha must be given for method 'alignuniform'")
        for name in ("space", "p", "axes"):
            if getattr(self, name) is not None and self.method not in CONTRASTIVE:
                raise ValueError(
                    f"{name} requires method {' or '.join(map(repr, CONTRASTIVE))}, got "
                    f"{self.method!r}"
                )
        if self.axes not in (None, "auto") and self.space == "box":
            raise ValueError(f"axes of space 'box' must be 'auto' or left out, got {self.axes!r}")
        if self.relax is not None and self.method != "infonce":
            raise ValueError(f"relax requires method 'infonce', got {self.method!r}")
        if self.encoder != "conv" and not self.contrastive:
            raise ValueError(f"encoder of {self.method!r} must be 'conv', got {self.encoder!r}")
        if self.beta is not None and self.method not in VAES:
            raise ValueError(f"beta requires a method of {', '.join(VAES)}, got {self.method!r}")
        return self

    @property
    def contrastive(self) -> bool:
        """Whether the model is a contrastive encoder, which has no decoder."""
        return self.method not in VAES

    @property
    def loss(self) -> str:
        """The loss of a contrastive encoder."""
        return "infonce" if self.method == UNDECLARED else self.method

    @property
    def beliefs(self) -> Beliefs:
        """What a contrastive encoder believes: a space of its codes, and a uniform marginal.

        The default believes what the estimator does to which nothing is declared.
        """
        if self.method == UNDECLARED:
            return ContrastiveICA(self.n_components).beliefs
        power, space = 1.0 if self.p is None else self.p, self.space or "euclidean"
        if power in (1.0, 2.0):
            return Beliefs(space, "uniform", "laplace" if power == 1 else "normal")
        return Beliefs(space, "uniform", "gennorm", power)

    def build(self, recipe: dict[str, Any], seed: int) -> Any:
        """Return the estimator, not yet fitted."""
        if not self.contrastive:
            options: dict[str, Any] = {} if self.beta is None else {"beta": self.beta}
            return VAES[self.method](
                self.n_components, random_state=seed, accelerator="cpu", **options, **recipe
            )
        return ContrastiveICA(
            self.n_components,
            encoder=self._network(seed),
            recipe=Recipe(**recipe),
            random_state=seed,
            accelerator="cpu",
            **self._declared(),
        )

    def _declared(self) -> dict[str, Any]:
        """Return the parameters that declare beliefs, with the loss and the relaxations."""
        if self.method == UNDECLARED:
            return {}
        beliefs = self.beliefs
        loss: str | nn.Module = self.loss
        if self.alpha is not None:
            loss = AlignUniform(alpha=self.alpha, p=beliefs.exponent or 1.0, include_self=True)
        return {
            "space": beliefs.space,
            "marginal": beliefs.marginal,
            "conditional": beliefs.conditional,
            "p": beliefs.p,
            "loss": loss,
            "relax": () if self.relax is None else self.relax,
            "axes": self.axes,
        }

    def _network(self, seed: int) -> str | nn.Module:
        """Return the name of the encoder, or an encoder with a learned bound for each code."""
        if self.space != "box":
            return self.encoder
        with torch.random.fork_rng(devices=[]):  # layers draw their weights from the global stream
            torch.manual_seed(seed)
            network = IMAGE_ENCODERS[self.encoder](self.n_components)
        return nn.Sequential(network, BoxHead(bound=[1.0] * self.n_components))

    def guarantee(self, world: Beliefs, n_factors: int) -> Guarantee:
        """Return what theory claims for the model, before it is trained, in a world of images.

        Args:
            world: The beliefs that hold in the world.
            n_factors: The number of its factors.
        """
        if not self.contrastive:
            return VAES[self.method]().guarantee_for(None)
        declared, relax = self.beliefs, self.relax
        relaxed = () if relax in (None, AUTO) else tuple(relax or ())
        return derive_guarantee(
            world,
            similarity=declared.similarity,
            similarity_p=declared.exponent,
            loss=self.loss,
            potentials="learned" if needs_potentials(relaxed) else declared.potentials(self.loss),
            head=declared.head,
            relaxed=[name for name in relaxed if name != "marginal"],
            n_components=self.n_components,
            n_factors=n_factors,
        )


def check_recipe_of(model: ImageModelSpec, recipe: dict[str, int | float]) -> None:
    """Raise ValueError if the recipe of a VAE has other parameters than VAEs take."""
    unknown = set(recipe) - set(VAE_PARAMETERS)
    if unknown and not model.contrastive:
        raise ValueError(
            f"recipe of {model.method!r} may have {', '.join(VAE_PARAMETERS)}, got "
            f"{sorted(unknown)}"
        )


class ImageCell(CellFields):
    """A world of images and a model to train on it; a cell and a seed make a run.

    Attributes:
        world: The images and how pairs of them are drawn.
        model: The model that is trained.
        recipe: Parameters of :class:`isolatent.Recipe` for contrastive encoders, or ``max_steps``,
            ``batch_size`` and ``learning_rate`` of a VAE.
    """

    world: ImageWorldSpec
    model: ImageModelSpec
    approaches: list[Annotated[str, one_of(("unsupervised",))]] = Field(default=["unsupervised"])
    metrics: list[Annotated[str, one_of(IMAGE_METRICS)]] = Field(default=["mcc"], min_length=1)

    @model_validator(mode="after")
    def _check_consistency(self) -> Self:
        if self.world.continuous and self.metrics != ["mcc"]:
            raise ValueError(f"metrics of continuous factors must be 'mcc', got {self.metrics}")
        check_recipe_of(self.model, dict(self.recipe))
        return self

    def estimator(self, seed: int) -> Any:
        """Return the model, not yet fitted."""
        return self.model.build(dict(self.recipe), seed)

    def guarantee(self) -> Guarantee:
        """Return what theory claims for the model in this world, before it is trained."""
        return self.model.guarantee(self.world.beliefs(), Sprites().n_factors)
