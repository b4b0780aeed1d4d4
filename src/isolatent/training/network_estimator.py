"""Base class of the estimators whose networks the engine trains."""

from __future__ import annotations

import hashlib
import os
from abc import abstractmethod
from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from torch import Generator, Tensor, nn

from isolatent.files import lock_directory, to_plain
from isolatent.pairs import Batch, PairSource, digest_source
from isolatent.training.checkpoints import Checkpoints, SavedState
from isolatent.training.devices import Processes, connect
from isolatent.training.engine import Training, train
from isolatent.training.observations import ObservationsMixin
from isolatent.training.progress import ProgressDisplay, Step, follow, ignore_step
from isolatent.training.storage import Stored, holds_modules

__all__ = ["NetworkEstimator", "TrainedRun"]

DIGEST_PAIRS = 256  # from which data are recognised where none are held out
DIGEST_VERSION = 2  # of what is hashed


@dataclass(frozen=True)
class TrainedRun:
    """A training run that has ended.

    Attributes:
        training: Its final state.
        source: The source it was trained on.
        held_out: The data that were held out, if any.
        modules: The modules to keep: ``"network"`` and those trained with it.
    """

    training: Training
    source: PairSource
    held_out: Batch | None
    modules: nn.ModuleDict


@dataclass(eq=False, repr=False, kw_only=True)
class NetworkEstimator(
    ObservationsMixin, Stored, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator
):
    """An estimator that trains a network: resumable, on any device, in one or more processes.

    Estimators are dataclasses: their parameters are the fields, which the generated constructor
    stores, as scikit-learn asks for.

    Args:
        n_components: Number of codes.
        random_state: Seed, ``np.random.RandomState`` or None, as in scikit-learn.
        accelerator: ``"cpu"``, ``"cuda"``, ``"mps"``, or ``"auto"``, which means the CPU.
        devices: Number of devices, or of processes on the CPU, on this machine.
        num_nodes: Number of machines.
        precision: ``"32-true"``, or ``"bf16-mixed"`` to run networks in bfloat16.
        verbose: Whether to show the progress of training, on standard error.
    """

    n_components: int = field(default=2, kw_only=False)
    random_state: int | np.random.RandomState | None = None
    accelerator: str = "auto"
    devices: int = 1
    num_nodes: int = 1
    precision: str = "32-true"
    verbose: bool = False

    @abstractmethod
    def code_module(self) -> nn.Module:
        """Return the module that computes :meth:`transform`: observations to codes, as tensors."""

    def transform(self, X: ArrayLike | Tensor) -> np.ndarray[Any, Any]:
        """Return the codes (N, n_components) of observations (N, ...), in the precision of X."""
        module = self.code_module()
        return self._map(self._as_array(X, reset=False), module)

    def _train(
        self,
        set_up: Callable[[int, Processes], tuple[Training, PairSource, Batch | None]],
        identity: Mapping[str, Any],
        *,
        checkpoint: str | os.PathLike[str] | None,
        resume: str | os.PathLike[str] | None,
        on_step: Callable[[Step], None],
        quality: Callable[[nn.Module], float] | None = None,
    ) -> TrainedRun:
        """Run the engine.

        Args:
            set_up: Called with the seed and the processes; returns a run that is ready to start,
                its source, and the data that it holds out.
            identity: Plain data that define the run, besides its seed and its data.
            checkpoint: Directory for checkpoints.
            resume: Directory of checkpoints to continue from.
            on_step: Called after every step, in the first process.
            quality: Scores a network where the truth is known.
        """
        checkpoints, saved = _open_checkpoints(checkpoint, resume)
        seed = self._draw_seed()
        if saved is not None and not isinstance(self.random_state, Integral):
            seed = saved.record["identity"]["seed"]  # repeat what was drawn without a seed
        processes = connect(self.accelerator, self.devices, self.num_nodes, self.precision)
        seed = processes.agree(seed)
        writes = checkpoints is not None and processes.rank == 0
        with lock_directory(checkpoints.directory) if checkpoints and writes else nullcontext():
            training, source, held_out = set_up(seed, processes)
            if checkpoints is not None:
                identity = self._full_identity(identity, seed, source, held_out)
            if saved is not None:
                training.restore(saved, identity)
            elif checkpoints is not None and writes:
                checkpoints.clear()
            processes.wait()
            first = processes.rank == 0
            with ExitStack() as stack:
                # A notebook shows a line of its own, unless something else follows the run.
                report = on_step if self.verbose else follow(on_step)
                if self.verbose and first:
                    display = stack.enter_context(ProgressDisplay())

                    def show(step: Step) -> None:
                        on_step(step)
                        display(step)

                    report = show
                modules = train(
                    training,
                    source,
                    held_out,
                    on_step=report if first else ignore_step,
                    quality=quality,
                    checkpoints=checkpoints,
                    identity=identity,
                )
        self.history_ = training.history
        return TrainedRun(training, source, held_out, modules)

    def _full_identity(
        self, identity: Mapping[str, Any], seed: int, source: PairSource, held_out: Batch | None
    ) -> dict[str, Any]:
        """Return all that must be the same for a run to be continued, as plain data."""
        given = self.random_state if isinstance(self.random_state, Integral) else None
        full: dict[str, Any] = to_plain(
            {
                "estimator": type(self).__name__,
                "seed": seed,
                "random_state": None if given is None else int(given),
                **_without_code(identity),
                "data": _digest(source, held_out),
            }
        )
        return full


def _open_checkpoints(
    checkpoint: str | os.PathLike[str] | None, resume: str | os.PathLike[str] | None
) -> tuple[Checkpoints | None, SavedState | None]:
    if checkpoint is not None and resume is not None:
        raise ValueError("checkpoint and resume exclude each other: resume also writes there")
    directory = checkpoint if resume is None else resume
    if directory is None:
        return None, None
    if Path(directory).is_file():
        name = "checkpoint" if resume is None else "resume"
        raise NotADirectoryError(f"{name} must be a directory, but {directory} is a file")
    checkpoints = Checkpoints(directory)
    return checkpoints, None if resume is None else checkpoints.latest()


def _without_code(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return the identity with modules described by their layers."""
    return {
        k: repr(v) if isinstance(v, nn.Module) or holds_modules(v) else v
        for k, v in identity.items()
    }


def _digest(source: PairSource, held_out: Batch | None) -> str:
    """Return a hash by which the data are recognised.

    It covers all arrays in memory, and of worlds and other endless sources some pairs.
    """
    if held_out is None:
        held_out = Batch.of(source.sample(DIGEST_PAIRS, Generator().manual_seed(0)))
    parts = (held_out.x, held_out.x_pos, held_out.negatives, held_out.tags, held_out.blocks)
    total = hashlib.sha256()
    for part in parts:
        if part is not None:
            total.update(part.contiguous().cpu().numpy().tobytes())
    total.update(digest_source(source))
    return f"{DIGEST_VERSION}:{total.hexdigest()}"
