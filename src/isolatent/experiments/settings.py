"""What every cell of an experiment has: a name, metrics, and what was published for them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

__all__ = [
    "Published",
    "Setting",
    "Spec",
    "check_one_of",
    "one_of",
    "plain",
    "what_matters",
]

# Fields of a cell on which its result does not depend: every run records all scores there are.
BESIDE = {"name", "metrics", "published", "centre", "matches", "limits", "note"}
CENTRES = ("mean", "median")
FILE_NAME = r"[A-Za-z0-9][A-Za-z0-9_.+=-]*"


def _published(written: Any) -> Any:
    """``99.42`` or ``[99.42, 0.05]`` in full."""
    if isinstance(written, dict | Published):
        return written
    parts = written if isinstance(written, list) else [written]
    if not all(map(_is_score, parts)) or len(parts) != (2 if isinstance(written, list) else 1):
        raise ValueError(
            f"must be a number, or it and its spread, such as [99.4, 0.1], got {written!r}"
        )
    return dict(zip(("value", "spread"), map(float, parts), strict=False))


def _is_score(value: Any) -> bool:
    """Whether it is a number that a float can hold."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return math.isfinite(value) if isinstance(value, float) else abs(value) < 1e300


def _by_metric(approach: str, written: Any, metrics: Any) -> Any:
    """Published values by metric; a value that stands alone is that of the only metric."""
    if isinstance(written, dict) and "value" not in written:
        return written
    if not isinstance(metrics, list) or len(metrics) != 1 or not isinstance(metrics[0], str):
        raise ValueError(
            f"published.{approach} must name the metric of {written!r}: one of {metrics}"
        )
    return {metrics[0]: written}


def one_of(allowed: tuple[str, ...]) -> BeforeValidator:
    """A validator of names, whose error says which are allowed."""
    return BeforeValidator(lambda value: check_one_of(value, allowed))


def check_one_of(value: Any, allowed: tuple[str, ...]) -> Any:
    """The value, if it is one of the allowed ones."""
    if value not in allowed:
        names = ", ".join(map(repr, allowed))
        raise ValueError(f"must be one of {names}, got {value!r}")
    return value


class Spec(BaseModel):
    """Strict: no key that is not known, no value of another type."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class Published(Spec):
    """A published score, in per cent.

    Attributes:
        value: The mean or median over seeds, as the cell's ``centre`` says.
        spread: The standard or absolute deviation over seeds, if it was printed.
    """

    value: float
    spread: float | None = Field(default=None, ge=0)


class Setting(Spec):
    """What every cell has.

    Attributes:
        name: A short name, also of files.
        recipe: Settings of training that differ from the default ones.
        approaches: What is scored.
        metrics: The scores that the table shows, the one that matters most first; a single one may
            be written without brackets.
        published: For some approaches the published scores by metric, in per cent; of a single
            metric its name may be left out.
        centre: What the published scores are over seeds, and so what is shown of ours:
            ``"mean"``, with the standard deviation, or ``"median"``, with the median absolute one.
        matches: Whether the model's assumptions hold in the world, if the paper says.
        limits: The metrics of which the claim is that they *fail* here, or true for all.
        note: A remark for the reader of the table.
    """

    name: str = Field(pattern=rf"^{FILE_NAME}$")
    recipe: dict[str, int | float] = {}
    approaches: list[str] = Field(min_length=1)
    metrics: list[str] = Field(min_length=1)
    published: dict[
        Literal["identity", "supervised", "unsupervised"],
        dict[str, Annotated[Published, BeforeValidator(_published)]],
    ] = {}
    centre: Annotated[str, one_of(CENTRES)] = "mean"
    matches: bool | None = None
    limits: list[str] = []
    note: str = ""

    @model_validator(mode="before")
    @classmethod
    def _in_full(cls, written: Any) -> Any:
        """Write out what may be shortened: one metric, its published values, limits of all."""
        if not isinstance(written, dict):
            return written
        full = dict(written)
        metrics = full.get("metrics", cls.model_fields["metrics"].default)
        full["metrics"] = metrics = [metrics] if isinstance(metrics, str) else metrics
        if isinstance(full.get("published"), dict):
            full["published"] = {
                approach: _by_metric(approach, values, metrics)
                for approach, values in full["published"].items()
            }
        if isinstance(limits := full.get("limits"), bool):
            full["limits"] = list(metrics) if limits else []
        return full

    @field_validator("approaches")
    @classmethod
    def _in_order(cls, approaches: list[str]) -> list[str]:
        """Each once, and in one order, so that tables and hashes do not depend on the file's."""
        return sorted(set(approaches))  # identity, supervised, unsupervised

    @field_validator("metrics")
    @classmethod
    def _each_once(cls, metrics: list[str]) -> list[str]:
        if len(set(metrics)) < len(metrics):
            raise ValueError(f"metrics must differ, got {metrics}")
        return metrics

    @model_validator(mode="after")
    def _names_what_it_has(self) -> Self:
        if missing := set(self.published) - set(self.approaches):
            raise ValueError(f"published holds {sorted(missing)}, which approaches does not")
        for key, named in (
            *((f"published.{approach}", values) for approach, values in self.published.items()),
            ("limits", self.limits),
        ):
            if unknown := [name for name in named if name not in self.metrics]:
                allowed = ", ".join(map(repr, self.metrics))
                raise ValueError(f"{key} must name metrics of the cell: {allowed}, got {unknown}")
        return self


def plain(spec: BaseModel) -> dict[str, Any]:
    """A spec as data for JSON and TOML: what is None is left out."""
    return spec.model_dump(mode="json", exclude_none=True)


def what_matters(cell: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a cell, as plain data, on which its result depends."""
    return {key: value for key, value in cell.items() if key not in BESIDE}
