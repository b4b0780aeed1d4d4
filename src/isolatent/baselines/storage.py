"""Save baselines to a directory and load them."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from numbers import Integral
from pathlib import Path
from typing import Any, Self

import numpy as np
from torch import Tensor

from isolatent.files import to_plain
from isolatent.training.checkpoints import DamagedFileError, read_pair, write_pair
from isolatent.training.storage import check_kind, make_directory

__all__ = ["Stored"]


class Stored(ABC):
    """Mixin for estimators whose fitted state is a dictionary of tensors."""

    random_state: int | np.random.RandomState | None
    feature_names_in_: Any
    _shape: tuple[int, ...]

    @abstractmethod
    def _fitted(self) -> dict[str, Tensor]:
        """Return the fitted tensors by name; raise NotFittedError before fitting."""

    @abstractmethod
    def _restore(self, tensors: dict[str, Tensor]) -> None:
        """Set the fitted attributes from the tensors of :meth:`_fitted`; ``_shape`` is set already.

        A KeyError or RuntimeError (which torch raises) means that the tensors do not fit.
        """

    def save(self, directory: str | os.PathLike[str], overwrite: bool = False) -> None:
        """Write ``model.safetensors`` and ``model.json`` to the directory.

        Args:
            directory: Created if it does not exist; other files in it are not touched.
            overwrite: Whether to replace a model that the directory holds already.
        """
        tensors = self._fitted()
        path = Path(directory)
        make_directory(path, overwrite)
        parameters: dict[str, Any] = self.get_params(deep=False)  # type: ignore[attr-defined]
        if not isinstance(self.random_state, Integral):
            parameters["random_state"] = None  # the state of a generator is not saved
        names = getattr(self, "feature_names_in_", None)
        record = {
            "estimator": type(self).__name__,
            "parameters": parameters,
            "shape": self._shape,
            "feature_names_in": None if names is None else [str(name) for name in names],
        }
        write_pair(path / "model", tensors, to_plain(record))

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> Self:
        """Load a model that :meth:`save` wrote; it must be of the same class."""
        tensors, record = read_pair(Path(directory) / "model")
        check_kind(cls.__name__, record, directory)
        # JSON has no tuples, and the only list among the parameters is ``lag``.
        parameters = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in record["parameters"].items()
        }
        model = cls(**parameters)
        model._set_shape(tuple(record["shape"]))  # type: ignore[attr-defined]
        if record["feature_names_in"] is not None:
            model.feature_names_in_ = np.asarray(record["feature_names_in"], dtype=object)
        try:
            model._restore(tensors)
        except (KeyError, RuntimeError) as error:
            raise DamagedFileError(f"{directory} does not fit a {cls.__name__}: {error}") from error
        return model
