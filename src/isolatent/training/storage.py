"""Save fitted estimators, and load them: tensors in safetensors, the rest in JSON."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Mapping
from numbers import Integral
from pathlib import Path
from typing import Any, Self

import numpy as np
from torch import Generator, Tensor, nn

from isolatent.files import to_plain
from isolatent.streams import layers_from_stream, random_stream
from isolatent.training.checkpoints import DamagedFileError, read_pair, write_pair
from isolatent.training.recipe import Recipe

__all__ = ["Stored"]

USER_MODULE = "(a module of your own)"  # stands in model.json for code, which is not saved


class Stored(ABC):
    """An estimator that consists of its parameters, the shape of its observations, and tensors."""

    random_state: int | np.random.RandomState | None
    feature_names_in_: Any
    _shape: tuple[int, ...]

    @abstractmethod
    def _fitted(self) -> dict[str, Tensor]:
        """Return the fitted tensors by name; raise NotFittedError if there are none."""

    @abstractmethod
    def _restore(self, tensors: dict[str, Tensor]) -> None:
        """Restore the tensors that :meth:`_fitted` returned; the shape is known.

        KeyError and RuntimeError, which torch raises, mean that the tensors do not fit.
        """

    def _record(self) -> dict[str, Any]:
        """Return what else to save, as plain data."""
        return {}

    def _restore_record(self, record: Mapping[str, Any]) -> None:  # noqa: B027  # optional
        """Restore what :meth:`_record` returned, before the tensors are restored."""

    def save(self, directory: str | os.PathLike[str], overwrite: bool = False) -> None:
        """Write ``model.safetensors`` and ``model.json``; other files in the directory stay."""
        tensors = self._fitted()
        path = Path(directory)
        if path.exists() and not path.is_dir():
            raise NotADirectoryError(f"directory must be a directory, but {path} is a file")
        if (path / "model.json").exists() and not overwrite:
            raise FileExistsError(f"directory: {path} holds a model; pass overwrite=True")
        path.mkdir(parents=True, exist_ok=True)
        parameters: dict[str, Any] = self.get_params(deep=False)  # type: ignore[attr-defined]
        if not isinstance(self.random_state, Integral):
            parameters["random_state"] = None  # a generator's stream cannot be repeated
        names = getattr(self, "feature_names_in_", None)
        record = {
            "estimator": _estimator_name(type(self)),
            "parameters": {name: _saved(value) for name, value in parameters.items()},
            "shape": self._shape,
            "feature_names_in": None if names is None else [str(name) for name in names],
            **self._record(),
        }
        write_pair(path / "model", {k: t.clone() for k, t in tensors.items()}, to_plain(record))

    @classmethod
    def load(cls, directory: str | os.PathLike[str]) -> Self:
        """Read what :meth:`save` wrote."""
        return cls._load(Path(directory), {})

    @classmethod
    def _load(cls, directory: Path, modules: Mapping[str, nn.Module | None]) -> Self:
        """Read a model, with the user's own modules in place of the parameters they are for."""
        tensors, record = read_pair(directory / "model")
        if record["estimator"] != _estimator_name(cls):
            raise ValueError(
                f"directory must hold a {_estimator_name(cls)}, but {directory} has a "
                f"{record['estimator']}"
            )
        parameters: dict[str, Any] = record["parameters"]
        for name, module in modules.items():
            _check_module(name, parameters[name], module)
            if module is not None:
                parameters[name] = module
        model = cls(**{name: _loaded(name, value) for name, value in parameters.items()})
        model._set_shape(tuple(record["shape"]))  # type: ignore[attr-defined]
        if record["feature_names_in"] is not None:
            model.feature_names_in_ = np.asarray(record["feature_names_in"], dtype=object)
        model._restore_record(record)
        try:
            # Weights are drawn before they are replaced.
            with random_stream(Generator()), layers_from_stream():
                model._restore(tensors)
        except (KeyError, RuntimeError) as error:
            if given := [name for name, module in modules.items() if module is not None]:
                raise ValueError(
                    f"{' and '.join(given)} must be like the module that the model was fitted "
                    f"with: {error}"
                ) from error
            raise DamagedFileError(
                f"{directory / 'model.safetensors'} does not fit the {cls.__name__}: {error}"
            ) from error
        return model


def _estimator_name(kind: type) -> str:
    """Return the name of the library's class that an estimator is, or is derived from."""
    return next(k.__name__ for k in kind.__mro__ if k.__module__.startswith("isolatent."))


def _saved(value: Any) -> Any:
    if isinstance(value, nn.Module):
        return USER_MODULE
    return value.to_dict() if isinstance(value, Recipe) else value


def _loaded(name: str, value: Any) -> Any:
    if name == "recipe" and isinstance(value, dict):
        return Recipe(**value)
    return tuple(value) if isinstance(value, list) else value  # JSON has no tuples


def _check_module(name: str, saved: Any, module: nn.Module | None) -> None:
    if saved == USER_MODULE and module is None:
        raise ValueError(
            f"{name} must be given: the model was fitted with a module of your own, and code is "
            "not saved"
        )
    if saved != USER_MODULE and module is not None:
        raise ValueError(f"{name} must be None: the model was fitted with {saved!r}")
