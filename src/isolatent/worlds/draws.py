"""Random numbers from an explicit generator, and the one rejection loop that samplers share."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Generator, Tensor

HOPELESS = 200  # rounds without a single acceptance after which there is no use in going on

__all__ = ["accept_reject", "normals", "uniforms"]


def uniforms(shape: tuple[int, ...], generator: Generator, like: Tensor) -> Tensor:
    """Draw from U[0, 1) in float64, on the generator's device, moved to ``like``'s device."""
    draw = torch.rand(shape, generator=generator, device=generator.device, dtype=torch.float64)
    return draw.to(like.device)


def normals(shape: tuple[int, ...], generator: Generator, like: Tensor) -> Tensor:
    """Draw from N(0, 1) on the generator's device, with ``like``'s dtype and device."""
    draw = torch.randn(shape, generator=generator, device=generator.device, dtype=like.dtype)
    return draw.to(like.device)


def accept_reject(
    out: Tensor,
    propose: Callable[[Tensor, int], tuple[Tensor, Tensor]],
    what: str,
    max_rounds: int = 2000,
) -> float:
    """Fill the rows of ``out`` with accepted candidates; return the share that was accepted.

    Args:
        out: Tensor (N, n) that is written in place.
        propose: Called with the indices of the rows still open and the round's number; returns one
            candidate for each of them and a boolean mask of those accepted.
        what: Named in the error when the sampler does not get anywhere.
        max_rounds: Rounds after which a sampler that still has open rows gives up.
    """
    open_rows = torch.arange(len(out), device=out.device)
    proposals = 0
    for round_number in range(max_rounds + 1):
        if len(open_rows) == 0:
            return len(out) / proposals if proposals else 1.0
        if round_number == HOPELESS and len(open_rows) == len(out):
            break
        candidates, accepted = propose(open_rows, round_number)
        proposals += len(open_rows)
        out[open_rows[accepted]] = candidates[accepted].to(out.dtype)
        open_rows = open_rows[~accepted]
    raise RuntimeError(
        f"{what}: {len(open_rows)} of {len(out)} rows found no accepted draw in {round_number} "
        "rounds; it puts almost no mass where this sampler looks. Try another scale (or weights), "
        "or another space"
    )
