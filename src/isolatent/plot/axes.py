"""Axes of matplotlib, which is imported when the first figure is drawn."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from isolatent.figure_data.rows import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["INSTALL", "as_drawn", "has_matplotlib", "import_matplotlib", "prepare_axes", "remark"]

INSTALL = "pip install 'isolatent[plot]'"


def has_matplotlib() -> bool:
    """Return whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def import_matplotlib(module: str) -> Any:
    """Return a module of matplotlib, such as ``"pyplot"``.

    Raises:
        ModuleNotFoundError: If matplotlib is not installed.
    """
    if not has_matplotlib():
        raise ModuleNotFoundError(f"plots need matplotlib, which is not installed: {INSTALL}")
    return import_module(f"matplotlib.{module}")


def prepare_axes(ax: Any = None, *, is_3d: bool = False) -> Axes:
    """Return the given axes, or those of a new figure.

    Args:
        ax: Axes of matplotlib, or None.
        is_3d: Whether they must have three dimensions.
    """
    axes_class = import_matplotlib("axes").Axes
    if ax is None:
        figure = import_matplotlib("pyplot").figure()
        new: Axes = figure.add_subplot(projection="3d") if is_3d else figure.add_subplot()
        return new
    if not isinstance(ax, axes_class):
        kind = type(ax).__name__
        hint = "; pass one of them" if hasattr(ax, "__len__") else ""
        raise TypeError(f"ax must be axes of matplotlib, got {kind}{hint}")
    if has_third_axis(ax) != is_3d:
        wanted = "three dimensions, made with projection='3d'," if is_3d else "two dimensions"
        raise ValueError(f"ax must have {wanted} for these components")
    given: Axes = ax
    return given


def has_third_axis(ax: Any) -> bool:
    """Return whether axes have three dimensions."""
    return hasattr(ax, "zaxis")


def as_drawn(values: Array) -> Array:
    """Return numbers, with times as the days that matplotlib counts."""
    if values.dtype.kind == "M":
        days: Array = import_matplotlib("dates").date2num(values)
        return days
    return values


def remark(ax: Axes, text: str) -> None:
    """Write a remark above the right end of the axes, such as what was left out."""
    if not text:
        return
    write: Any = getattr(ax, "text2D", ax.text)
    write(1.0, 1.01, text, transform=ax.transAxes, ha="right", va="bottom", fontsize="x-small")
