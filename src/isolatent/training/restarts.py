"""Choose the capacity of the network and its first weights, by the held-out loss of short runs."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from torch import Generator

from isolatent.checks import check_integer
from isolatent.pairs import Batch, FinitePairSource, PairSource, UnpairedPairs
from isolatent.training.capacity import LINEAR, Capacity, Start
from isolatent.training.engine import train
from isolatent.training.recipe import Recipe
from isolatent.training.setup import MIN_PAIRS_TO_HOLD_OUT, Setup

__all__ = [
    "CAPACITIES",
    "FEWEST_PAIRS",
    "UNPAIRED_CAPACITIES",
    "check_n_init",
    "choose_start",
]

FEW_PAIRS = 50_000  # with fewer the default network may overfit
OVERFITTED = 0.1  # nats that a short run loses on held-out pairs, from which on others are tried
CAPACITIES = (
    Capacity(24, 0.0, 6.0),
    Capacity(32, 0.0, 6.0),
    Capacity(32, 0.1, 3.0),
    Capacity(64, 0.3, 3.0),
    LINEAR,
)
LARGER, ENOUGH_FOR_LARGER = Capacity(128, 0.0, 3.0), 8000  # it is ahead at first, with fewer too
# A decoder that also reconstructs many unpaired observations can weigh more.
UNPAIRED_CAPACITIES = (Capacity(64, 0.0, 3.0), Capacity(128, 0.0, 40.0), Capacity(64, 0.1, 12.0))
SHORT_RUN, SHORT_RUN_OF_FEW = 300, 1000  # steps of a short run
INITIAL_RUNS, MORE_RUNS = 2, 2  # short runs from other weights, and more where those disagree
DISAGREEMENT = 0.02  # nats between two short runs that did not find the same
FEWEST_PAIRS = 100  # with fewer nothing but a linear encoder can be told from chance


def check_n_init(n_init: object) -> int | None:
    """Return the number of runs to start with, or None for ``"auto"``.

    Args:
        n_init: ``"auto"``, or a positive integer.

    Example:
        >>> check_n_init("auto"), check_n_init(3)
        (None, 3)
    """
    if isinstance(n_init, str):
        if n_init != "auto":
            raise ValueError(f"n_init must be 'auto' or a positive integer, got {n_init!r}")
        return None
    return check_integer("n_init", n_init, at_least=1)


def choose_start(
    set_up: Callable[[Recipe, Start], Setup],
    recipe: Recipe,
    seed: int,
    source: PairSource,
    n_init: int | None,
) -> Start:
    """Return the start whose short run has the least held-out loss.

    Without enough pairs to hold some out there is nothing to compare, and fewer than 100 pairs get
    a linear encoder. Otherwise the default network comes first. If it overfits few pairs, the
    :data:`CAPACITIES` are compared. A linear encoder is taken only if it is also better than the
    best network that was trained to the end, since a network learns long after its short run.
    Then the best one is started from other weights: ``n_init`` times in all, or, if that is None,
    twice, and twice more where the two disagree by more than 0.02 nats. A short run minimises
    InfoNCE as declared: a saturated loss, or relaxations, would make the losses of two runs
    incomparable.

    Args:
        set_up: Returns a run that is ready to start, with all pairs held out that others hold out.
        recipe: The settings of the fit.
        seed: Seed of the fit.
        source: The pairs.
        n_init: Number of runs from different weights; None to let their losses decide.
    """
    if not isinstance(source, FinitePairSource) or len(source) < MIN_PAIRS_TO_HOLD_OUT:
        return Start()
    n_pairs = len(source)
    if n_pairs < FEWEST_PAIRS and n_init is None:
        return Start(LINEAR)
    capacities = UNPAIRED_CAPACITIES if isinstance(source, UnpairedPairs) else CAPACITIES
    losses: dict[Start, float] = {}

    def run(start: Start, steps: int) -> float:
        settings = start.recipe(recipe, n_pairs)
        settings = replace(settings, max_steps=min(steps, settings.max_steps), saturation=0.0)
        losses[start], gap = _train_briefly(set_up(settings, start), seed)
        return gap

    def best() -> Start:
        return min(losses, key=lambda start: losses[start])

    steps = SHORT_RUN
    if run(Start(), steps) > OVERFITTED and n_pairs < FEW_PAIRS:
        steps = SHORT_RUN_OF_FEW
        larger = [LARGER] if n_pairs >= ENOUGH_FOR_LARGER else []
        for capacity in [*capacities, *larger]:
            run(Start(capacity), steps)
    if best().capacity == LINEAR:  # whose short run is complete, unlike those of networks
        steps = recipe.max_steps
        run(min(losses.keys() - {best()}, key=lambda start: losses[start]), steps)
        if n_init is None:
            return best()
    chosen = best()
    runs = INITIAL_RUNS if n_init is None else n_init
    for number in range(1, runs):
        run(Start(chosen.capacity, seed + number), steps)
    same = abs(losses[chosen] - losses.get(Start(chosen.capacity, seed + 1), 0)) <= DISAGREEMENT
    if n_init is None and not same:
        for number in range(runs, runs + MORE_RUNS):
            run(Start(chosen.capacity, seed + number), steps)
    return best()


def _train_briefly(run: Setup, seed: int) -> tuple[float, float]:
    """Train a run, and return its least held-out loss, and how much it overfitted, in nats.

    Both are infinite if it diverged.
    """
    training = run.training
    try:
        train(training, run.source, run.held_out)
    except FloatingPointError:
        return math.inf, math.inf
    seen = Batch.of(run.source.sample(len(run.held_out), Generator().manual_seed(seed)))
    network = training.measured_network
    unseen_loss, seen_loss = (
        training.held_out_loss(network, pairs) for pairs in (run.held_out, seen)
    )
    return training.schedule.best, unseen_loss - seen_loss
