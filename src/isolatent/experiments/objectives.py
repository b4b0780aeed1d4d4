"""Name the objective that a run trained with, and tell the papers' objectives from ours."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from isolatent.theory import Beliefs

__all__ = [
    "NOT_RECORDED",
    "is_published_objective",
    "objective_of_model",
    "objective_of_record",
    "pool_objectives",
]

NOT_RECORDED = "not recorded"
# By the names of losses and methods in the specification of a cell.
LABELS = {
    "infonce": "InfoNCE",
    "default": "InfoNCE",
    "aninfonce": "AnInfoNCE",
    "nce": "NCE",
    "scl": "SCL",
    "nwj": "NWJ",
    "alignuniform": "L_AU",
    "ensemble": "ensemble of AnInfoNCE",
    "beta_vae": "β-VAE",
    "slow_vae": "SlowVAE",
    "ada_gvae": "Ada-GVAE",
    "ada_mlvae": "Ada-ML-VAE",
}
STRAIGHTENED, TURNED = "straightened", "axes turned"
AXES_BY = {"ica": "axes by independence", "dynamics": "axes by dynamics"}
# Parts of an objective that the papers' experiments with published scores do not have.
ADDITIONS = re.compile(
    r"saturat|kept uniform|learned potential|axes|turned|rotat|straighten", re.IGNORECASE
)
# A remark of the training on how relaxations were chosen, which is not part of the objective.
REMARK = re.compile(r" \(not all relaxations were compared[^()]*\)")
STEP = re.compile(r"\b(?P<word>from|by) step (?P<step>\d+)")


def is_published_objective(objective: str) -> bool:
    """Return whether an objective is that of the papers, without additions of ours.

    Example:
        >>> is_published_objective("InfoNCE"), is_published_objective("AnInfoNCE, axes turned")
        (True, False)
    """
    return objective != NOT_RECORDED and ADDITIONS.search(objective) is None


def objective_of_model(spec: Mapping[str, Any], model: Any) -> str:
    """Return the objective, the calibration and the axes of a fitted model.

    Args:
        spec: The cell as plain data.
        model: The fitted estimator. Its guarantee names both where training recorded them;
            otherwise the objective is read off its loss and history.
    """
    guarantee = getattr(model, "guarantee_", None)
    saturated = _first_unbounded(
        [(step.number, step.information is not None) for step in model.history_]
    )
    objective = str(getattr(guarantee, "objective", "") or "")
    if not objective:
        objective = _label(spec) or type(model).__name__
        if _loss_name(spec) == "infonce" and saturated is not None:
            objective += f", saturated from step {saturated}"
    if "potential" not in objective and (kind := _potentials_of(getattr(model, "loss_", None))):
        objective = _with_potentials(objective, kind)
    applied, calibration = str(getattr(guarantee, "calibration", "") or ""), ""
    if "rotated to the principal axes" in applied:
        calibration = TURNED
    elif "coordinates straightened" in applied:
        calibration = STRAIGHTENED
    axes = getattr(model, "axes_", None)
    return ", ".join(filter(None, (objective, calibration, _describe_axes(axes))))


def objective_of_record(record: Mapping[str, Any], cell: Mapping[str, Any]) -> str:
    """Return the objective of a stored run.

    Records that do not name it have it in part in their specification (loss, potentials, axes) and
    in part in their training curve: the bound on information is known for InfoNCE only, so it ends
    where the saturated form starts.

    Args:
        record: The record.
        cell: The cell as plain data, for records without a specification.

    Example:
        >>> cell = {"model": {"space": "sphere", "loss": "infonce"}}
        >>> curve = [{"number": 10, "information": 1.0}, {"number": 20, "loss": -3.0}]
        >>> objective_of_record({"curve": curve}, cell)
        'InfoNCE, saturated by step 20'
    """
    if record.get("objective"):
        return REMARK.sub("", str(record["objective"]))
    spec = record.get("spec") or cell
    label, loss, model = _label(spec), _loss_name(spec), spec.get("model") or {}
    if label is None or not {"method", "space"} & model.keys():
        return NOT_RECORDED
    if "method" in model:
        beliefs, potentials = Beliefs("euclidean", "uniform"), "none"
    else:
        names = (model.get(key) for key in ("marginal", "conditional", "p"))
        beliefs = Beliefs(model["space"], *names)
        by_name = loss != "ensemble" and "negatives" not in (spec.get("world") or {})
        potentials = (model.get("potentials") or beliefs.potentials(loss)) if by_name else "none"
    objective = _with_potentials(label, potentials)
    weighted = beliefs.similarity == "weighted"
    if weighted and beliefs.head == "sphere" and beliefs.marginal == "uniform":
        objective += f", {TURNED}"
    may_saturate = loss == "infonce" and potentials == "none" and not weighted
    if not may_saturate or (spec.get("recipe") or {}).get("saturation") == 0:
        return objective
    curve = _points(record.get("curve"))
    if not curve:
        return NOT_RECORDED
    start = _first_unbounded(curve)
    if start is not None:
        objective += f", saturated by step {start:.0f}"
        objective += f", {STRAIGHTENED}" if beliefs.head == "box" else ""
    return objective


def pool_objectives(objectives: Sequence[str]) -> str:
    """Return the objectives of several runs as one text; steps become a range.

    Example:
        >>> pool_objectives(["InfoNCE, saturated by step 40", "InfoNCE, saturated by step 50"])
        'InfoNCE, saturated by step 40–50'
    """
    steps_of: dict[str, list[int]] = {}
    count_of: Counter[str] = Counter()
    for objective in objectives:
        found = STEP.search(objective)
        kind = objective if found is None else STEP.sub(f"{found['word']} step {{}}", objective)
        count_of[kind] += 1
        steps_of.setdefault(kind, []).extend([] if found is None else [int(found["step"])])
    texts = []
    for kind, steps in steps_of.items():
        ends = sorted({min(steps), max(steps)}) if steps else []
        text = kind.replace("{}", "–".join(map(str, ends)))
        several = f" ({count_of[kind]} of {len(objectives)} runs)" if len(steps_of) > 1 else ""
        texts.append(text + several)
    return "; ".join(texts)


def _describe_axes(axes: Any) -> str:
    """Return how axes were found, and in how many blocks if some were not told apart."""
    if axes is None:
        return ""
    if not axes.separates:
        return "no axes told apart"
    blocks = "" if axes.complete else f" in {len(axes.blocks)} blocks"
    return f"{AXES_BY[axes.method]}{blocks}"


def _loss_name(spec: Mapping[str, Any]) -> str:
    model = spec.get("model") or {}
    return str(model.get("method") or model.get("loss") or "infonce") if model else ""


def _label(spec: Mapping[str, Any]) -> str | None:
    return LABELS.get(_loss_name(spec))


def _with_potentials(objective: str, kind: str) -> str:
    if kind == "none":
        return objective
    loss, comma, rest = objective.partition(",")
    return f"{loss} with {kind} potentials{comma}{rest}"


def _potentials_of(loss: Any) -> str:
    found = [getattr(loss, name, None) for name in ("potential", "potential_pos")]
    kinds = {type(p).__name__ for p in found if p is not None}
    if not kinds:
        return ""
    return "constant" if kinds == {"ConstantPotential"} else "learned"


def _points(curve: Any) -> list[tuple[float, bool]]:
    """Return the steps of a stored curve, and whether each has a bound on information."""
    return [
        (point["number"], point.get("information") is not None)
        for point in (curve if isinstance(curve, list) else ())
        if isinstance(point, dict) and isinstance(point.get("number"), int | float)
    ]


def _first_unbounded(steps: Sequence[tuple[float, bool]]) -> float | None:
    """Return the step after the last that has a bound on information, if there is one."""
    if not steps or steps[-1][1]:
        return None
    known = [k for k, (_, bounded) in enumerate(steps) if bounded]
    return steps[known[-1] + 1 if known else 0][0]
