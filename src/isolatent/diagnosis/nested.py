"""Test an assumption by relaxing it: does the relaxed model gain on pairs that neither saw?"""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import torch
from scipy import stats
from torch import Generator, Tensor, nn

from isolatent.contrast import ContrastiveLoss
from isolatent.diagnosis.agreement import agreement
from isolatent.diagnosis.held_out import HeldOut, encode
from isolatent.diagnosis.p_values import of_best
from isolatent.diagnosis.verdict import CANNOT_TELL, CONTRADICTED, NATS, SUPPORTED, Check
from isolatent.theory import Beliefs
from isolatent.training import ContrastiveTraining, Recipe, train
from isolatent.training.axis_search import without_axes
from isolatent.training.batch_losses import has_bound
from isolatent.training.measurements import measure_relaxations
from isolatent.training.relaxation_choice import candidates_for
from isolatent.training.relaxations import (
    NEED_POTENTIALS,
    PROBE_STEPS,
    STANDARD_ERRORS,
    Gain,
    compare_losses,
    compare_relaxations,
)

__all__ = ["check_relaxations_nested"]

MOST_STEPS, FEWEST_STEPS, SHARE_OF_FIT = 400, 150, 0.25
FEWEST_PROBE_STEPS, PROBE_SHARE = 50, 0.15  # of a fit at the codes
RELAXED_BATCH_SIZE = 256
RELAXED_RATE = 1e-2
SATURATION_PAIRS = 256  # as many as a comparison takes
MARGINAL_SHARE = 0.5  # of a gain that is put down to the marginal
MOST_BROKEN = 3  # assumptions that are relaxed one on top of the other
LARGEST_MISSED_GAIN = 0.05  # nats: gains that could still be larger are not told from none


@dataclass(frozen=True)
class _Model:
    """A network with its loss, and its codes of the pairs to test with."""

    network: nn.Module
    loss: ContrastiveLoss
    codes: tuple[Tensor, Tensor]


def check_relaxations_nested(
    network: nn.Module,
    loss: nn.Module,
    beliefs: Beliefs,
    head: str,
    pairs: HeldOut,
    *,
    steps: int,
    metric: str,
    seed: int,
) -> list[Check]:
    """Return a check for each assumption that can be relaxed, and is not yet.

    Each relaxation is first fitted at the codes of the network, which costs seconds. The one that
    gains most is then trained together with the network, and its gain is taken over the same
    network, trained as long without it. The others are compared on top of it, since one broken
    assumption looks like several: so an assumption counts as contradicted only if it explains what
    those before it do not. Harm is one minus the agreement of the codes with and without it.

    Args:
        network: The encoder, which has not seen the pairs to test with.
        loss: Its loss.
        beliefs: What is declared.
        head: Where codes live.
        pairs: Pairs to train with, and pairs to test with.
        steps: Steps of the fit.
        metric: How codes are compared.
        seed: Seed of the training.
    """
    if not isinstance(loss, ContrastiveLoss) or loss.negatives_from != "across":
        return []
    plain = pairs.testing.negatives is None and pairs.testing.tags is None
    if not plain or pairs.testing.blocks is not None:
        return []
    names = candidates_for(loss, beliefs, pairs.source)
    probe_steps = max(FEWEST_PROBE_STEPS, min(PROBE_STEPS, round(PROBE_SHARE * steps)))
    steps = max(FEWEST_STEPS, min(MOST_STEPS, round(SHARE_OF_FIT * steps)))
    codes = encode(network, pairs.testing)
    base = _Model(without_axes(network), loss, codes)
    found: dict[str, Check] = {}
    left = list(names)
    while left and len(found) < MOST_BROKEN:
        gains, fits = _fit_at_codes(base, left, head, pairs, probe_steps)
        best = _first(gains)
        if not gains[best].is_significant:
            found |= {name: _check(name, gains[name]) for name in left}
            left = []
            break
        relaxed = _trained(base.network, fits[best], pairs, steps, seed)
        same = _trained(base.network, base.loss, pairs, steps, seed)
        gain, tried = _compare(same, relaxed), len(left)
        left.remove(best)
        if not gain.is_significant:
            found[best] = _check(best, gain, tried=tried)
            continue
        harm = 1 - agreement(same.codes[0].numpy(), relaxed.codes[0].numpy(), metric)
        found[best] = _check(best, gain, max(0.0, harm), relaxed, tried)
        base = relaxed
    if left:
        rest = _fit_at_codes(base, left, head, pairs, probe_steps)[0]
        found |= {name: _check(name, gain) for name, gain in rest.items()}
    checks = [found[name] for name in names]
    if _is_saturated(base, pairs):
        return [_unsure(check) for check in checks]
    return checks


def _is_saturated(model: _Model, pairs: HeldOut) -> bool:
    """Return whether nearly all negatives are farther away than the positive."""
    if not has_bound(model.loss, pairs.testing):
        return False
    with torch.no_grad():
        h, h_pos = (part[:SATURATION_PAIRS] for part in model.codes)
        value = float(model.loss(h, h_pos))
    return value < Recipe().saturation * math.log(len(h))


def _unsure(check: Check) -> Check:
    """A saturated loss shows what it gains, but not that there is nothing to gain."""
    if check.status != SUPPORTED:
        return check
    effect = f"{check.effect}, but the loss is saturated, so it can hardly tell"
    return replace(check, status=CANNOT_TELL, effect=effect)


def _first(gains: Mapping[str, Gain]) -> str:
    """Return the relaxation that gains most, or the marginal if that explains most of the gain.

    Relaxations that bring learned potentials with them gain what these gain, too.
    """
    best = max(gains, key=lambda name: gains[name].mean)
    marginal = gains.get("marginal")
    if marginal is None or best not in NEED_POTENTIALS:
        return best
    return "marginal" if marginal.mean > MARGINAL_SHARE * gains[best].mean else best


def _fit_at_codes(
    model: _Model, names: list[str], head: str, pairs: HeldOut, steps: int
) -> tuple[dict[str, Gain], dict[str, ContrastiveLoss]]:
    codes = encode(model.network, pairs.fitting)
    return compare_relaxations(model.loss, names, codes, model.codes, head, steps=steps)


def _trained(
    network: nn.Module,
    loss: nn.Module,
    pairs: HeldOut,
    steps: int,
    seed: int,
) -> _Model:
    """Train a model for some steps more, from where it is."""
    network, relaxed = deepcopy(network), deepcopy(loss)
    assert isinstance(relaxed, ContrastiveLoss)
    recipe = Recipe(
        max_steps=steps,
        batch_size=min(RELAXED_BATCH_SIZE, len(pairs.fitting)),
        learning_rate=RELAXED_RATE,
        warmup=steps // 10,
        cooldown=0.5,
        saturation=0.0,
        tolerance=0.0,
    )
    for module in (network, relaxed):
        module.train().requires_grad_(True)
    training = ContrastiveTraining(network, relaxed, recipe, Generator().manual_seed(seed))
    modules = train(training, pairs.source)
    trained: Any = modules["loss"].eval()
    return _Model(modules["network"], trained, encode(modules["network"], pairs.testing))


def _compare(before: _Model, after: _Model) -> Gain:
    return compare_losses((before.loss, *before.codes), (after.loss, *after.codes))


def _check(
    name: str,
    gain: Gain,
    harm: float | None = None,
    relaxed: _Model | None = None,
    tried: int = 1,
) -> Check:
    z = gain.mean / gain.error if gain.error > 0 else 0.0
    p_value = of_best(float(stats.norm.sf(z)), tried)
    effect = f"relaxing it gains {gain.mean:.3f} ± {gain.error:.3f} nats on held-out pairs"
    if relaxed is not None:
        learned = _words(name, measure_relaxations(relaxed.loss, *relaxed.codes))
        effect = f"{learned}; {effect}" if learned else effect
        return Check(name, CONTRADICTED, gain.mean, effect, p_value, harm, gain.error, unit=NATS)
    precise = gain.mean + STANDARD_ERRORS / 2 * gain.error < LARGEST_MISSED_GAIN
    status = SUPPORTED if precise else CANNOT_TELL
    return Check(name, status, gain.mean, effect, p_value, error=gain.error, unit=NATS)


def _words(name: str, measured: dict[str, Any]) -> str:
    found = measured.get(name, {})
    if name == "pairing":
        return f"{1 - found['related_share']:.0%} of the pairs look unrelated"
    if name == "anchor_scale":
        return f"steps are {found['width_ratio']:.1f} times wider at some places"
    if name == "factor_scale":
        return f"steps are {found['width_ratio']:.1f} times wider along one code than another"
    if name == "dynamics":
        turns = max(abs(angle) for angle in found["angles"])
        return f"codes turn by up to {turns:.2f} rad"
    return ""
