"""The comparison of candidate beliefs as numbers to draw: how far each is behind the best."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from isolatent.diagnosis import Choice
from isolatent.figure_data.rows import Array

__all__ = ["ChoiceData", "choice_data"]


@dataclass(frozen=True)
class ChoiceData:
    """The candidates of a choice, the best first.

    Attributes:
        names: The candidates in words.
        statuses: ``"chosen"``, ``"tied"``, ``"worse"`` or ``"diverged"``.
        steps: Steps of the longest run of each (K,).
        information: Held-out information in nats (K,); NaN for runs that diverged. It is comparable
            between candidates with equally many steps.
        behind: Nats by which the best is ahead on the same held-out pairs (K,), 0 for the best
            itself; NaN for candidates that were not compared with it.
        errors: Standard errors of these differences (K,).
        verdict: What was chosen, in words.
    """

    names: tuple[str, ...]
    statuses: tuple[str, ...]
    steps: Array
    information: Array
    behind: Array
    errors: Array
    verdict: str


def choice_data(choice: Choice) -> ChoiceData:
    """Return the candidates of a choice.

    Args:
        choice: The result of :func:`isolatent.choose`.

    Example:
        >>> from isolatent.diagnosis import Trial
        >>> first = Trial("box, normal", 600, 1.5, None, None, 2, None, "chosen", {})
        >>> second = Trial("sphere, vmf", 600, 1.2, 0.3, 0.1, 2, None, "worse", {})
        >>> data = choice_data(Choice({}, (), 2, None, None, (first, second), "The box."))
        >>> data.names, data.behind.tolist(), data.errors.tolist()
        (('box, normal', 'sphere, vmf'), [0.0, 0.3], [0.0, 0.1])
    """
    trials = choice.trials
    chosen = [trial.status == "chosen" for trial in trials]
    behind = [0.0 if best else trial.behind for best, trial in zip(chosen, trials, strict=True)]
    errors = [
        0.0 if best else trial.behind_error for best, trial in zip(chosen, trials, strict=True)
    ]
    return ChoiceData(
        tuple(trial.name for trial in trials),
        tuple(trial.status for trial in trials),
        np.array([trial.steps for trial in trials], dtype=np.intp),
        _floats([trial.information for trial in trials]),
        _floats(behind),
        _floats(errors),
        choice.verdict,
    )


def _floats(values: list[float | None]) -> Array:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
