"""Save fitted estimators, and load them: tensors in safetensors, the rest in JSON."""

from __future__ import annotations

import copy
import os
import warnings
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Generator, Tensor, nn

from isolatent.files import INTERPRETATION_ERRORS, DamagedFileError, reading, to_plain
from isolatent.streams import layers_from_stream, random_stream
from isolatent.training.checkpoints import describe_invalid, read_pair, write_pair
from isolatent.training.recipe import Recipe

__all__ = ["ModelRecord", "Stored"]

LARGEST_SIZE = 2**31 - 1
LONGEST_MESSAGE = 300
USER_MODULE = "(a module of your own)"  # stands in model.json for code, which is not saved


class ModelRecord(BaseModel):
    """The plain data of a model, in model.json; estimators add fields of their own.

    Attributes:
        estimator: Name of the class.
        parameters: Its parameters.
        shape: Shape of one observation.
        feature_names_in: Names of the columns, if X had some.
    """

    model_config = ConfigDict(extra="allow", strict=True)

    estimator: str
    parameters: dict[str, Any]
    shape: list[Annotated[int, Field(gt=0, le=LARGEST_SIZE)]] = Field(max_length=8)
    feature_names_in: list[str] | None


class Stored(ABC):
    """An estimator that consists of its parameters, the shape of its observations, and tensors."""

    random_state: int | np.random.RandomState | None
    feature_names_in_: Any
    _shape: tuple[int, ...]
    _record_schema: ClassVar[type[ModelRecord]] = ModelRecord

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
    def _load(cls, directory: Path, modules: Mapping[str, Any]) -> Self:
        """Read a model, with the user's own modules in place of the parameters they are for."""
        described = directory / "model.json"
        tensors, record = read_pair(directory / "model")
        _check_record(described, record, ModelRecord)
        if record["estimator"] != _estimator_name(cls):
            raise ValueError(
                f"directory must hold a {_estimator_name(cls)}, but {directory} has a "
                f"{record['estimator']}"
            )
        _check_record(described, record, cls._record_schema)
        parameters: dict[str, Any] = record["parameters"]
        for name, module in modules.items():
            if name not in parameters:
                raise DamagedFileError(described, f"parameters: {name} is missing")
            _check_module(name, parameters[name], module)
            if module is not None:
                parameters[name] = module
        with reading(described):
            model = cls(**{name: _loaded(name, value) for name, value in parameters.items()})
            model._set_shape(tuple(record["shape"]))  # type: ignore[attr-defined]
            if record["feature_names_in"] is not None:
                model.feature_names_in_ = np.asarray(record["feature_names_in"], dtype=object)
            model._restore_record(record)
        given = [name for name, module in modules.items() if module is not None]
        try:
            model._restore_checked(tensors, given)
        except INTERPRETATION_ERRORS as error:
            if given and isinstance(error, KeyError | RuntimeError):
                raise ValueError(
                    f"{' and '.join(given)} must be like the module that the model was fitted "
                    f"with: {error}"
                ) from error
            raise DamagedFileError(
                directory / "model.safetensors",
                f"it does not fit the {cls.__name__}: {_brief(error)}",
            ) from error
        return model

    def _restore_checked(self, tensors: dict[str, Tensor], given: Sequence[str]) -> None:
        """Restore tensors that have the shapes and types of the model, and are finite.

        The modules are built without memory first, on torch's meta device: what ``model.json``
        says may ask for any size, but there are only as many weights as the tensors hold.
        """
        probe = copy.copy(self)
        with torch.device("meta"), warnings.catch_warnings():
            warnings.filterwarnings("ignore", ".* is a no-op")  # nothing is copied there
            probe._restore(dict(tensors))
        # Weights are drawn before they are replaced.
        with random_stream(Generator()), layers_from_stream():
            self._restore(dict(tensors))
        restored = self._fitted()
        if missing := restored.keys() ^ tensors.keys():
            raise RuntimeError(f"{min(missing)} is not in both")
        # Buffers of a user's own module may hold anything, such as infinity in a mask.
        trusted = {
            f"{name}.{key}"
            for name in given
            for key, _ in getattr(self, f"{name}_").named_buffers()
        }
        for name, tensor in tensors.items():
            kept = restored[name]
            if (kept.dtype, kept.shape) != (tensor.dtype, tensor.shape):
                raise RuntimeError(
                    f"{name} must be {kept.dtype} of shape {tuple(kept.shape)}, got {tensor.dtype} "
                    f"of shape {tuple(tensor.shape)}"
                )
            if name in ("history", *trusted) or not tensor.is_floating_point():
                continue
            if not bool(tensor.isfinite().all()):
                raise RuntimeError(f"{name} holds NaN or infinity")


def _check_record(path: Path, record: Mapping[str, Any], schema: type[ModelRecord]) -> None:
    try:
        schema.model_validate(record)
    except ValidationError as error:
        raise DamagedFileError(path, describe_invalid(error)) from error


def _brief(error: Exception) -> str:
    """Return the message of an error in one line that is not very long."""
    return " ".join((str(error) or repr(error)).split())[:LONGEST_MESSAGE]


def _estimator_name(kind: type) -> str:
    """Return the name of the library's class that an estimator is, or is derived from."""
    return next(k.__name__ for k in kind.__mro__ if k.__module__.startswith("isolatent."))


def holds_modules(value: Any) -> bool:
    """Return whether a parameter is a tuple of the user's modules."""
    return isinstance(value, tuple) and any(isinstance(one, nn.Module) for one in value)


def _saved(value: Any) -> Any:
    if isinstance(value, nn.Module) or holds_modules(value):
        return USER_MODULE
    return value.to_dict() if isinstance(value, Recipe) else value


def _loaded(name: str, value: Any) -> Any:
    if name == "recipe" and isinstance(value, dict):
        return Recipe(**value)
    return tuple(value) if isinstance(value, list) else value  # JSON has no tuples


def _check_module(name: str, saved: Any, module: Any) -> None:
    if saved == USER_MODULE and module is None:
        raise ValueError(
            f"{name} must be given: the model was fitted with a module of your own, and code is "
            "not saved"
        )
    if saved != USER_MODULE and module is not None:
        raise ValueError(f"{name} must be None: the model was fitted with {saved!r}")
