"""Saving fitted models, and reading them."""

from __future__ import annotations

import os
from collections.abc import Callable
from copy import deepcopy
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from torch import nn

from isolatent.files import to_plain
from isolatent.theory import Guarantee
from isolatent.training.assembly import Beliefs, build_encoder, build_loss, dtype_of
from isolatent.training.checkpoints import DamagedFileError, read_pair, write_pair
from isolatent.training.recipe import Recipe
from isolatent.training.steps import steps_from_tensor, steps_to_tensor

if TYPE_CHECKING:
    from isolatent.training.estimator import ContrastiveICA

__all__ = ["check_kind", "load_model", "make_directory", "save_model"]

Model = TypeVar("Model", bound="ContrastiveICA")
OWN = "(a module of your own)"  # stands in model.json for code, which is not saved


def save_model(model: ContrastiveICA, directory: Path, overwrite: bool) -> None:
    """Write ``model.safetensors`` and ``model.json`` into the directory."""
    make_directory(directory, overwrite)
    parameters = model.get_params(deep=False)
    recipe = parameters.pop("recipe")
    seed = parameters.pop("random_state")
    lag = parameters.pop("lag")
    names = getattr(model, "feature_names_in_", None)
    record = {
        "parameters": {k: OWN if isinstance(v, nn.Module) else v for k, v in parameters.items()},
        "recipe": None if recipe is None else recipe.to_dict(),
        "random_state": seed if isinstance(seed, Integral) else None,  # no stream can be repeated
        "lag": lag,
        "guarantee": model.guarantee_.to_dict(),
        "shape": list(model._shape),
        "dtype": str(dtype_of(model.encoder_)).removeprefix("torch."),
        "feature_names_in": None if names is None else [str(name) for name in names],
    }
    tensors = {f"encoder.{k}": v.clone() for k, v in model.encoder_.state_dict().items()}
    tensors |= {f"loss.{k}": v.clone() for k, v in model.loss_.state_dict().items()}
    tensors["history"] = steps_to_tensor(model.history_)
    write_pair(directory / "model", tensors, to_plain(record))


def make_directory(directory: Path, overwrite: bool) -> None:
    """Make room for a model, and refuse to replace one unless asked to."""
    if directory.exists() and not directory.is_dir():
        raise NotADirectoryError(f"directory must be a directory, but {directory} is a file")
    if (directory / "model.json").exists() and not overwrite:
        raise FileExistsError(f"directory: {directory} holds a model; pass overwrite=True")
    directory.mkdir(parents=True, exist_ok=True)


def check_kind(expected: str, record: dict[str, Any], directory: str | os.PathLike[str]) -> None:
    """Raise ValueError if a record that was read is that of another estimator."""
    kind = record.get("estimator", "ContrastiveICA")  # whose files do not say what they are
    if kind != expected:
        raise ValueError(f"directory must hold a {expected}, but {directory} has a {kind}")


def load_model(
    kind: Callable[..., Model], directory: Path, encoder: nn.Module | None, loss: nn.Module | None
) -> Model:
    """Read what :func:`save_model` wrote."""
    tensors, record = read_pair(directory / "model")
    check_kind("ContrastiveICA", record, directory)  # subclasses are saved under that name, too
    parameters: dict[str, Any] = record["parameters"]
    for name, module in (("encoder", encoder), ("loss", loss)):
        if (parameters[name] == OWN) != (module is not None):
            needed = "must be given: the model was fitted with a module of your own, and code is "
            raise ValueError(
                f"{name} {needed}not saved"
                if module is None
                else f"{name} must be None: the model was fitted with {parameters[name]!r}"
            )
        if module is not None:
            parameters[name] = module
    recipe, lag = record["recipe"], record["lag"]
    model = kind(
        **parameters,
        recipe=None if recipe is None else Recipe(**recipe),
        random_state=record["random_state"],
        lag=tuple(lag) if isinstance(lag, list) else lag,
    )
    beliefs = Beliefs(model)
    shape = tuple(record["shape"])
    made: Any = encoder
    if isinstance(model.encoder, str):
        made = build_encoder(model.encoder, shape, beliefs)
        made.to(getattr(torch, record["dtype"]))
    model.encoder_ = deepcopy(made).eval()
    model.loss_ = (
        build_loss(model.loss, beliefs) if isinstance(model.loss, str) else deepcopy(model.loss)
    )
    for name, part in (("encoder", model.encoder_), ("loss", model.loss_)):
        prefix = f"{name}."
        state = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
        try:
            part.load_state_dict(state)
        except RuntimeError as error:
            raise DamagedFileError(
                f"{directory / 'model.safetensors'} does not fit the {name}: {error}"
            ) from error
    model.history_ = steps_from_tensor(tensors["history"])
    model.guarantee_ = Guarantee.from_dict(record["guarantee"])
    model._shape = shape
    model.n_features_in_ = int(np.prod(shape))
    if record["feature_names_in"] is not None:
        model.feature_names_in_ = np.asarray(record["feature_names_in"], dtype=object)
    return model
