"""The page of a fitted model."""

from __future__ import annotations

import dataclasses
import math
import platform
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from isolatent.evaluation import align_codes, bootstrap, correlation_matrix, linear_r2, mcc
from isolatent.figure_data import EncodedRows, TraversalData, encode_rows, traversal_data
from isolatent.report.diagnosed import headline_of
from isolatent.report.figures import evenly_spaced
from isolatent.report.page import (
    APPROACH_LABELS,
    Facts,
    Matrix,
    Page,
    Relaxation,
    Score,
    Section,
)
from isolatent.training.recording_inputs import resolve_roles

if TYPE_CHECKING:
    from isolatent.diagnosis import Diagnosis
    from isolatent.training import ContrastiveICA

__all__ = ["page_of_fit"]

MAX_ENCODED = 100_000  # rows
MAX_SCORED = 4096  # rows
FEWEST_DECODED = 40  # rows
MAX_IMAGES = 1500  # that a decoder is fitted to
MAX_DRAWN = 400  # points of the figures
LAST_SHARE = 0.05  # of the steps, over which final values are averaged to reduce noise
# What the world may do, by the name of the relaxation.
RELAXATION_MEANINGS = {
    "pairing": "some pairs are unrelated",
    "anchor_scale": "steps are wider in some places than in others",
    "factor_scale": "some factors move more than others",
    "marginal": "factors have any marginal",
    "dynamics": "positives lie around a map of the anchor",
    "noise": "observations are ambiguous",
}
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
    X_pos: Any = None,
    groups: ArrayLike | None = None,
    times: ArrayLike | None = None,
    columns: Mapping[str, Any] | None = None,
    diagnosis: Diagnosis | None = None,
) -> Page:
    """Return a page about a fitted model, with scores if the true factors are known.

    The first thing on it is a verdict: of the diagnosis, or of what the fit noticed by itself.
    At most 100 000 observations are encoded, evenly spaced over all, and if they are rows of
    numbers, a decoder is fitted to show what each code changes.

    Args:
        model: A fitted ``ContrastiveICA``.
        X: Observations to encode; without them the page shows no codes.
        factors: The true factors of X.
        command: The command that repeats the fit.
        truth: The scale or weights of the world, if known.
        title: The page's heading.
        summary: Paragraphs below the heading.
        quality: Name of the quality that ``fit`` measured during training, for the axis.
        X_pos: The positive of each row of X, to colour by relatedness where it was learned.
        groups: One session id for each row, or the name of a column of X; by default that of the
            fit.
        times: The time of each row, or the name of a column.
        columns: Further values for each row, by name, to colour the codes by; by default the
            columns of X.
        diagnosis: The result of :func:`isolatent.diagnose`.

    Example:
        >>> import isolatent as iso
        >>> model = iso.ContrastiveICA(2, recipe=iso.Recipe(max_steps=2), random_state=0)
        >>> x = np.random.default_rng(0).normal(size=(90, 2)).cumsum(axis=0)
        >>> page = page_of_fit(model.fit(x), x)
        >>> page.headline.label, page.sections[0].rows.codes.shape
        ('Not supported', (90, 2))
    """
    if factors is not None and X is None:
        raise ValueError("X must be given with factors: the observations of these factors")
    guarantee = model.guarantee_.to_dict()
    section = Section(
        "The fit",
        facts=_facts(model),
        curves=(tuple(map(dataclasses.asdict, model.history_)),),
        quality=quality,
        learned=_learned(model),
        relaxations=_relaxations(model),
        axes=model.guarantee_.code_axes,
        axes_choice="" if model.axes_ is None else model.axes_.choice,
        truth=tuple(map(float, truth)),
        guarantee=guarantee,
        spec=_spec(model),
        command=command,
        diagnosis=diagnosis,
    )
    if X is not None:
        X, groups, times = resolve_roles(X, groups, times, getattr(model, "_roles", {}))
        given = _Given(X, X_pos, groups, times, columns, factors).thinned(model)
        section = _with_codes(section, model, given)
        if given.factors is not None:
            assert section.rows is not None
            z = given.factors
            index = evenly_spaced(len(z), MAX_SCORED)
            x, codes = np.asarray(given.X)[index], section.rows.codes[index]
            section = _with_truth(section, x, z[index], codes, guarantee)
    return Page(title, tuple(summary), sections=(section,), headline=headline_of(model, diagnosis))


@dataclasses.dataclass(frozen=True)
class _Given:
    """What is known about each row; every field but X may be None."""

    X: Any
    X_pos: Any
    groups: Any
    times: Any
    columns: Mapping[str, Any] | None
    factors: Any

    def thinned(self, model: ContrastiveICA) -> _Given:
        """Return at most MAX_ENCODED rows; windows need their neighbours, so they keep all."""
        factors = None if self.factors is None else np.asarray(self.factors)
        is_list = isinstance(self.X, list | tuple)
        count = sum(map(len, self.X)) if is_list else len(self.X)
        if factors is not None and len(factors) != count:
            raise ValueError(f"factors must have as many rows as X ({count}), got {len(factors)}")
        given = dataclasses.replace(self, factors=factors)
        if count <= MAX_ENCODED or is_list or model.window > 1:
            return given
        # By whole steps: rows one and two apart would look like pauses.
        index = range(0, count, math.ceil(count / MAX_ENCODED))
        taken = {
            name: None if value is None else _rows_of(value, index)
            for name in ("X", "X_pos", "groups", "times", "factors")
            for value in [getattr(given, name)]
        }
        if self.times is None:
            taken["times"] = np.asarray(index)
        columns = self.columns and {
            name: _rows_of(values, index) for name, values in self.columns.items()
        }
        return _Given(**taken, columns=columns)


def _rows_of(values: Any, index: Sequence[int]) -> Any:
    """Return some rows of an array or a data frame, which keeps the names of its columns."""
    return values.iloc[index] if hasattr(values, "iloc") else np.asarray(values)[np.asarray(index)]


def _with_codes(section: Section, model: ContrastiveICA, given: _Given) -> Section:
    """Add codes, what they can be coloured by, and what a decoder makes of them."""
    X, columns = given.X, given.columns
    related = given.X_pos if "pairing" in model.relaxed_ and model.window == 1 else None
    rows = encode_rows(model, X, X_pos=related, groups=given.groups, times=given.times)
    names = [str(name) for name in getattr(model, "feature_names_in_", ())] or None
    ndim = 0 if isinstance(X, list | tuple) else np.ndim(X)  # 0 for several recordings
    is_table = ndim == 2
    if columns is None:
        columns = _columns_of(X, names) if is_table else {}
    changes = None
    if is_table or (ndim in (3, 4) and model.window == 1):
        changes = _changes(rows, X, names if is_table else None)
    is_recording = bool(getattr(model, "_has_recording", False))
    return dataclasses.replace(
        section, rows=rows, columns=columns, is_recording=is_recording, changes=changes
    )


def _changes(rows: EncodedRows, X: Any, names: Sequence[str] | None) -> TraversalData | None:
    """Return what a decoder changes along each code; None where there is nothing to decode."""
    if np.isfinite(rows.codes).all(axis=1).sum() < FEWEST_DECODED:
        return None
    if np.ndim(X) > 2:  # images take much memory
        index = evenly_spaced(len(X), MAX_IMAGES)
        rows, X = EncodedRows(rows.codes[index], rows.names, head=rows.head), X[index]
    with suppress(ValueError):  # observations without any variation have no decoder
        return traversal_data(rows, X, column_names=names)
    return None


def _columns_of(X: Any, names: Sequence[str] | None) -> dict[str, Any]:
    """Return the columns of a table by their names."""
    if hasattr(X, "columns"):
        names = [str(name) for name in X.columns]
    x = np.asarray(X)
    names = names or [f"column {k}" for k in range(x.shape[1])]
    return {name: x[:, k] for k, name in enumerate(names)}


def _with_truth(section: Section, x: Any, z: Any, h: Any, guarantee: dict[str, Any]) -> Section:
    """Add scores and figures of codes h against true factors z."""
    guaranteed = guarantee["metric"] if guarantee["equivalence"] else None
    one_by_one = guaranteed in ("mcc", "block_mcc")
    scored = {"identity": x} if np.ndim(x) == 2 else {}
    scores = tuple(
        Score(
            name,
            APPROACH_LABELS[approach],
            str(bootstrap(score, z, codes)),
            name == guaranteed and approach == "unsupervised",
        )
        for approach, codes in (scored | {"unsupervised": h}).items()
        if len(codes) >= 2 * (codes.shape[1] + 2)  # required by a held-out linear fit
        for name, score in SCORES.items()
    )
    factors, codes = align_codes(z, h, one_by_one=one_by_one)
    return dataclasses.replace(
        section,
        scores=scores,
        correlations=_matrix(correlation_matrix(factors, codes), len(factors)),
        scatter=(_matrix(factors, MAX_DRAWN), _matrix(codes, MAX_DRAWN)),
        alignment="assignment" if one_by_one else "linear",
    )


def _matrix(values: Any, most: int) -> Matrix:
    chosen = np.asarray(values, dtype=float)[evenly_spaced(len(values), most)]
    return tuple(tuple(row) for row in chosen.tolist())


def _learned(model: ContrastiveICA) -> tuple[float, ...]:
    """Return the learned weights, or a single number if they are all equal."""
    loss: Any = model.loss_
    if not hasattr(loss, "coordinate_weights"):
        return ()
    weights = tuple(loss.coordinate_weights(model.n_components).detach().tolist())
    return weights if len(set(weights)) > 1 else weights[:1]


def _relaxations(model: ContrastiveICA) -> tuple[Relaxation, ...]:
    """Return the relaxations in use, then those that were compared and are not."""
    from isolatent.training.measurements import describe_relaxations

    others = [name for name in model.gains_ if name not in model.relaxed_]
    shown = []
    for name in (*model.relaxed_, *others):
        used, gain = name in model.relaxed_, model.gains_.get(name)
        measured = {name: model.learned_[name]} if name in model.learned_ else {}
        shown.append(
            Relaxation(
                f"{name}: {RELAXATION_MEANINGS[name]}",
                used,
                "; ".join(describe_relaxations(measured)),
                "" if gain is None else f"{gain[0]:.3f} ± {gain[1]:.3f}",
            )
        )
    return tuple(shown)


def _facts(model: ContrastiveICA) -> Facts:
    facts = [
        ("Beliefs", model.declaration),
        ("Sizes", f"{model.n_features_in_} columns to {model.n_components} components"),
    ]
    history = model.history_
    if history:
        last = history[-max(1, math.ceil(LAST_SHARE * len(history))) :]
        facts.append(("Steps", str(history[-1].number)))
        facts.append(("Final loss", f"{np.mean([step.loss for step in last]):.4g}"))
        held_out = [step.held_out for step in history if step.held_out is not None]
        information = [step.information for step in last if step.information is not None]
        if information:
            most = last[-1].loss + (last[-1].information or 0.0)
            facts.append(("Information in batches", _of_at_most(np.mean(information), most)))
        shared = [
            (bound, bound + step.held_out)
            for step in last
            if (bound := step.held_out_information) is not None and step.held_out is not None
        ]
        if information and shared:
            facts.append(("Information in held-out pairs", _of_at_most(*shared[-1])))
        elif held_out:
            facts.append(("Final held-out loss", f"{held_out[-1]:.4g}"))
    return tuple(facts)


def _of_at_most(information: Any, most: float) -> str:
    return f"{information:.3g} of at most {most:.3g} nats (log B)"


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
