"""The page of one fitted model."""

from __future__ import annotations

import dataclasses
import math
import platform
import warnings
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from isolatent.evaluation import align_codes, bootstrap, correlation_matrix, linear_r2, mcc
from isolatent.report.figures import evenly
from isolatent.report.page import Cell, Curve, Facts, Matrix, Moment, Page, Scatter, Score

if TYPE_CHECKING:
    from isolatent.training import ContrastiveICA

__all__ = ["page_of_fit"]

MOST_ROWS = 4096  # that are encoded for the page
MOST_SHOWN = 400  # points kept for the figures
LAST = 0.05  # share of the steps over which the noisy figures of the end are averaged
SCORES: dict[str, Callable[..., Any]] = {"linear_r2": linear_r2, "mcc": mcc}


def page_of_fit(
    model: ContrastiveICA,
    X: ArrayLike | None = None,
    factors: ArrayLike | None = None,
    *,
    command: str | None = None,
    truth: Sequence[float] = (),
    title: str = "Report of a fit",
    summary: Sequence[str] = (),
    quality: str = "score",
) -> Page:
    """Describe a fitted model, with scores where the true factors are known.

    Of more than 4096 observations, that many are taken, evenly spaced.

    Args:
        model: A fitted ``ContrastiveICA``.
        X: Observations to encode; without them codes are not shown.
        factors: The true factors of X.
        command: What fits the model again.
        truth: The world's scale or weights, if they are known.
        title: The page's heading.
        summary: Paragraphs below it.
        quality: What ``fit`` was told to measure while training, for the axis.

    Example:
        >>> import isolatent as iso
        >>> model = iso.ContrastiveICA(2, recipe=iso.Recipe(max_steps=2), random_state=0)
        >>> x = np.random.default_rng(0).normal(size=(90, 2)).cumsum(axis=0)
        >>> page = page_of_fit(model.fit(x), x)
        >>> page.cells[0].name, len(page.cells[0].codes)
        ('The fit', 90)
    """
    if factors is not None and X is None:
        raise ValueError("X must be given with factors: the observations that they are behind")
    guarantee = model.guarantee_.to_dict()
    cell = Cell(
        "The fit",
        facts=_facts(model),
        curves=(_curve(model),),
        quality=quality,
        learned=_learned(model),
        truth=tuple(map(float, truth)),
        guarantee=guarantee,
        spec=_spec(model),
        command=command,
    )
    if X is not None:
        x, z = _chosen(X, factors)
        with warnings.catch_warnings():  # an array's columns are in the order of the names
            warnings.filterwarnings("ignore", "X does not have valid feature names")
            with warnings.catch_warnings():  # plain columns in the order of the fitted ones
                warnings.filterwarnings("ignore", "X does not have valid feature names")
                h = model.transform(x)
        if z is None:
            cell = dataclasses.replace(cell, codes=_matrix(h, len(h)))
        else:
            cell = _with_truth(cell, x, z, h, guarantee)
    return Page(title, tuple(summary), cells=(cell,))


def _with_truth(cell: Cell, x: Any, z: Any, h: Any, guarantee: dict[str, Any]) -> Cell:
    promised = guarantee["metric"] if guarantee["equivalence"] else None
    one_by_one = promised in ("mcc", "block_mcc")
    scored = {"recovered": h}
    if np.ndim(x) == 2:
        scored = {"observations as they are": x, "recovered": h}
    scores = tuple(
        Score(name, of, str(bootstrap(score, z, codes)), name == promised and of == "recovered")
        for of, codes in scored.items()
        if len(codes) >= 2 * (codes.shape[1] + 2)  # what a held-out fit needs
        for name, score in SCORES.items()
    )
    factors, codes = align_codes(z, h, one_by_one=one_by_one)
    how = (
        "after the best assignment, and with the sign that correlates"
        if one_by_one
        else "after the best linear map, fitted on other observations"
    )
    return dataclasses.replace(
        cell,
        scores=scores,
        correlations=_matrix(correlation_matrix(factors, codes), len(factors)),
        scatter=Scatter(_matrix(factors, MOST_SHOWN), _matrix(codes, MOST_SHOWN)),
        alignment=how,
    )


def _chosen(X: Any, factors: Any) -> tuple[Any, npt.NDArray[Any] | None]:
    """At most MOST_ROWS observations and their factors."""
    framed = hasattr(X, "iloc")  # a data frame keeps the names of its columns
    array: Any = X if framed else np.asarray(X)
    z = None if factors is None else np.asarray(factors)
    if z is not None and len(z) != len(array):
        raise ValueError(f"factors must have as many rows as X ({len(array)}), got {len(z)}")
    index = evenly(len(array), MOST_ROWS)
    x = array.iloc[index] if framed else array[index]
    return x, None if z is None else z[index]


def _matrix(values: Any, most: int) -> Matrix:
    chosen = np.asarray(values, dtype=float)[evenly(len(values), most)]
    return tuple(tuple(row) for row in chosen.tolist())


def _curve(model: ContrastiveICA) -> Curve:
    moments = tuple(
        Moment(s.number, s.loss, s.held_out, s.information, s.scale, s.quality)
        for s in model.history_
    )
    return Curve("training", moments)


def _learned(model: ContrastiveICA) -> tuple[float, ...]:
    """The learned weights; one number if they are all the same."""
    similarity = getattr(model.loss_, "similarity", None)
    if similarity is None:
        return ()
    weights = tuple(similarity.coordinate_weights(model.n_components).detach().tolist())
    return weights if len(set(weights)) > 1 else weights[:1]


def _facts(model: ContrastiveICA) -> Facts:
    power = "" if model.p is None else f", p = {model.p:g}"
    facts = [
        ("Beliefs", f"{model.space}, {model.marginal} marginal, {model.conditional}{power}"),
        ("Sizes", f"{model.n_features_in_} columns to {model.n_components} components"),
    ]
    history = model.history_
    if history:
        end = history[-max(1, math.ceil(LAST * len(history))) :]
        facts.append(("Steps", str(history[-1].number)))
        facts.append(("Loss in the end", f"{np.mean([step.loss for step in end]):.4g}"))
        held_out = [step.held_out for step in history if step.held_out is not None]
        if held_out:
            facts.append(("Held-out loss in the end", f"{held_out[-1]:.4g}"))
        found = [step.information for step in end if step.information is not None]
        if found:
            most = end[-1].loss + (end[-1].information or 0.0)
            facts.append(
                ("Information found", f"{np.mean(found):.3g} of at most {most:.3g} nats (log B)")
            )
    return tuple(facts)


def _spec(model: ContrastiveICA) -> dict[str, Any]:
    parameters = model.get_params(deep=False)
    recipe = parameters.pop("recipe")
    return {
        "parameters": parameters,
        "recipe": None if recipe is None else recipe.to_dict(),
        "versions": {
            "python": platform.python_version(),
            **{name: version(name) for name in ("isolatent", "torch", "numpy", "scikit-learn")},
        },
    }
