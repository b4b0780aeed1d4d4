"""Base class of the estimators whose networks the engine trains."""

from __future__ import annotations

import hashlib
import os
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from torch import Generator, Tensor, nn

from isolatent.files import to_plain
from isolatent.pairs import Batch, PairSource, SeparateRecordings, UnpairedPairs
from isolatent.training.checkpoints import Checkpoints, SavedState
from isolatent.training.devices import Processes, connect
from isolatent.training.engine import Training, train
from isolatent.training.observations import ObservationsMixin
from isolatent.training.progress import Step, follow, ignore_step
from isolatent.training.storage import Stored

__all__ = ["NetworkEstimator", "TrainedRun"]

DIGEST_PAIRS = 256  # from which data are recognised where none are held out


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
        accelerator: ``"auto"``, ``"cpu"``, ``"cuda"`` or ``"mps"``.
        devices: Number of devices, or of processes on the CPU, on this machine.
        num_nodes: Number of machines.
        precision: ``"32-true"``, or ``"bf16-mixed"`` to run networks in bfloat16.
    """

    n_components: int = field(default=2, kw_only=False)
    random_state: int | np.random.RandomState | None = None
    accelerator: str = "auto"
    devices: int = 1
    num_nodes: int = 1
    precision: str = "32-true"

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
        training, source, held_out = set_up(seed, processes)
        if checkpoints is not None:
            identity = to_plain(
                {
                    "estimator": type(self).__name__,
                    "seed": seed,
                    **_without_code(identity),
                    "data": _digest(source, held_out),
                }
            )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            if saved is not None:
                training.restore(saved, identity)
            elif checkpoints is not None and processes.rank == 0:
                checkpoints.clear()
            processes.wait()
            modules = train(
                training,
                source,
                held_out,
                on_step=follow(on_step) if processes.rank == 0 else ignore_step,
                quality=quality,
                checkpoints=checkpoints,
                identity=identity,
            )
        self.history_ = training.history
        return TrainedRun(training, source, held_out, modules)


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
    return {k: repr(v) if isinstance(v, nn.Module) else v for k, v in identity.items()}


def _digest(source: PairSource, held_out: Batch | None) -> str:
    """Return a hash by which the data are recognised, as far as some of their pairs show."""
    if held_out is None:
        held_out = Batch.of(source.sample(DIGEST_PAIRS, Generator().manual_seed(0)))
    parts = (held_out.x, held_out.x_pos, held_out.negatives, held_out.tags, held_out.blocks)
    data = [part.contiguous().cpu().numpy().tobytes() for part in parts if part is not None]
    if isinstance(source, UnpairedPairs | SeparateRecordings):
        data.append(source.digest())
    return hashlib.sha256(b"".join(data)).hexdigest()
