"""Shapes in which recordings come: trials of equal length, and tables with their own columns."""

from __future__ import annotations

from typing import Any

import numpy as np

from isolatent.pairs.readers.faults import unknown_name

__all__ = ["stack_trials", "take_columns"]


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
