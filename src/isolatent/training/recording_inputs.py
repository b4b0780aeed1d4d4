"""Shapes in which recordings come: trials of equal length, and tables with their own columns."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from isolatent.pairs.readers.faults import unknown_name

__all__ = ["drop_columns", "resolve_roles", "stack_trials", "take_columns"]


def resolve_roles(
    X: Any, groups: Any, times: Any, known: Mapping[str, str]
) -> tuple[Any, Any, Any]:
    """Return observations, session ids and times of a data frame, or of what else was given.

    Args:
        X: The observations; of a data frame, columns of sessions and times are taken out.
        groups: Session ids, or the name of their column; None for that of the fit, if X has it.
        times: The same for times.
        known: Names that the fit used, by ``"groups"`` and ``"times"``.

    Example:
        >>> import pandas as pd
        >>> table = pd.DataFrame({"u": [0.5, 0.7], "day": ["mon", "tue"]})
        >>> rest, groups, times = resolve_roles(table, None, None, {"groups": "day"})
        >>> [*rest], groups.tolist(), times
        (['u'], ['mon', 'tue'], None)
    """
    columns = {str(name) for name in getattr(X, "columns", ())}
    has = {role: name for role, name in known.items() if name in columns}
    groups = has.get("groups") if groups is None else groups
    times = has.get("times") if times is None else times
    X, groups, times = take_columns(X, groups, times)
    return drop_columns(X, known.values()), groups, times


def drop_columns(X: Any, names: Collection[str]) -> Any:
    """Return a data frame without some of its columns, if it has them; all else as it is."""
    columns = getattr(X, "columns", None)
    if columns is None or not names:
        return X
    rest = [name for name in columns if str(name) not in names]
    return X if len(rest) == len(columns) else X[rest]


def take_columns(X: Any, groups: Any, times: Any) -> tuple[Any, Any, Any]:
    """Take session ids and times out of a data frame where they are names of its columns.

    Example:
        >>> import pandas as pd
        >>> table = pd.DataFrame({"u": [0.5, 0.7], "day": ["mon", "tue"]})
        >>> rest, groups, _ = take_columns(table, "day", None)
        >>> [*rest], groups.tolist()
        (['u'], ['mon', 'tue'])
    """
    roles = {"groups": groups, "times": times}
    named = {role: name for role, name in roles.items() if isinstance(name, str)}
    if not named:
        return X, groups, times
    columns = getattr(X, "columns", None)
    if columns is None:
        role, name = next(iter(named.items()))
        raise TypeError(
            f"{role} must be an array unless X is a data frame, whose columns have names, got "
            f"{name!r}"
        )
    known = [str(name) for name in columns]
    for role, name in named.items():
        if name not in known:
            raise ValueError(f"X {unknown_name('column', name, role, known)}")
        roles[role] = np.asarray(X[name])
    rest = [name for name in columns if name not in named.values()]
    return X[rest], roles["groups"], roles["times"]


def stack_trials(X: Any, groups: Any, times: Any) -> tuple[Any, Any, Any]:
    """Return trials (trials, time, columns) as rows, their numbers as groups, and their times.

    Args:
        X: The trials, an array with three axes.
        groups: None; each trial is a session.
        times: None, the times of a trial, or those of each trial (trials, time).

    Example:
        >>> rows, groups, times = stack_trials(np.zeros((2, 3, 4)), None, [0.0, 0.1, 0.2])
        >>> rows.shape, groups.tolist(), times.tolist()
        ((6, 4), [0, 0, 0, 1, 1, 1], [0.0, 0.1, 0.2, 0.0, 0.1, 0.2])
    """
    if groups is not None:
        raise ValueError(
            "groups must be None when X has shape (trials, time, columns): each trial is a session"
        )
    trials, length, width = X.shape
    if times is not None:
        times = np.asarray(times)
        if times.shape not in ((length,), (trials, length)):
            raise ValueError(
                f"times must have shape ({length},) or ({trials}, {length}) for trials of shape "
                f"{X.shape}, got {times.shape}"
            )
        times = np.broadcast_to(times, (trials, length)).reshape(-1)
    return X.reshape(trials * length, width), np.repeat(np.arange(trials), length), times
