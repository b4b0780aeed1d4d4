"""Save a fitted contrastive ICA as tensors and plain data, and rebuild it from them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import deepcopy
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import Field
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from isolatent.contrast import ContrastiveLoss
from isolatent.encoders import Axes, LinearAxes
from isolatent.inference import dtype_of
from isolatent.theory import Guarantee
from isolatent.training.assembly import (
    build_encoder,
    build_recording_encoders,
    saved_whitening,
)
from isolatent.training.axis_search import append_axes
from isolatent.training.capacity import Capacity
from isolatent.training.claims import FittedClaims
from isolatent.training.decoder import CodeDecoder
from isolatent.training.noise import FirstCodes, build_noisy_encoder, build_objective
from isolatent.training.progress import Step, steps_from_tensor, steps_to_tensor
from isolatent.training.relaxations import attach
from isolatent.training.storage import LARGEST_SIZE, ModelRecord
from isolatent.training.support import Support

__all__ = ["StoredModel"]


Count = Annotated[int, Field(gt=0, le=LARGEST_SIZE)]


class ContrastiveRecord(ModelRecord):
    """The plain data of a contrastive ICA."""

    guarantee: dict[str, Any]
    head: Literal["sphere", "box", "free"]
    recording: bool = False
    columns: list[Count] | None = None
    views: Annotated[list[Count], Field(min_length=2, max_length=2)] | None = None
    roles: dict[Literal["groups", "times"], str] = Field(default_factory=dict)
    dtype: Literal["float32", "float64"]
    relaxed: list[str]
    gains: dict[str, Annotated[list[float], Field(min_length=2, max_length=2)]]
    learned: dict[str, Any]
    axes: dict[str, Any] | None = None
    capacity: Annotated[list[float], Field(min_length=3, max_length=3)] | None = None
    decoder: float | None = None


class StoredModel(FittedClaims):
    """Rebuild encoder and loss from their tensors and a record."""

    history_: list[Step]
    decoder_: CodeDecoder
    decoder_explained_: float
    _record_schema: ClassVar[type[ModelRecord]] = ContrastiveRecord

    def _fitted(self) -> dict[str, Tensor]:
        check_is_fitted(self, "encoder_")
        tensors = {f"encoder.{k}": v for k, v in self.encoder_.state_dict().items()}
        tensors |= {f"loss.{k}": v for k, v in self.loss_.state_dict().items()}
        if hasattr(self, "decoder_"):
            tensors |= {f"decoder.{k}": v for k, v in self.decoder_.state_dict().items()}
        return tensors | {"history": steps_to_tensor(self.history_)}

    def _record(self) -> dict[str, Any]:
        return {
            "guarantee": self.guarantee_.to_dict(),
            "head": self.head_,
            "recording": self._has_recording,
            "columns": None if self._columns is None else list(self._columns),
            "views": None if self._views is None else list(self._views),
            "roles": dict(self._roles),
            "dtype": str(dtype_of(self.encoder_)).removeprefix("torch."),
            "relaxed": list(self.relaxed_),
            "gains": {name: list(gain) for name, gain in self.gains_.items()},
            "learned": self.learned_,
            "axes": None if self.axes_ is None else self.axes_.to_dict(),
            "capacity": None if self.capacity_ is None else list(self.capacity_),
            "decoder": getattr(self, "decoder_explained_", None),
            "support": None if self.support_ is None else self.support_._asdict(),
        }

    def _restore_record(self, record: Mapping[str, Any]) -> None:
        self.guarantee_ = Guarantee.from_dict(record["guarantee"])
        self.beliefs_, self.head_ = self._beliefs(), record["head"]
        self._has_recording = record.get("recording", False)
        columns = record.get("columns")
        self._columns = None if columns is None else tuple(columns)
        views = record.get("views")
        self._views = None if views is None else (views[0], views[1])
        self._roles = dict(record.get("roles", {}))
        self._dtype = getattr(torch, record["dtype"])
        self.relaxed_ = tuple(record["relaxed"])
        self.gains_ = {name: tuple(gain) for name, gain in record["gains"].items()}
        self._set_learned(record["learned"])
        capacity = record.get("capacity")
        self.capacity_ = None if capacity is None else Capacity(*capacity)
        if record.get("decoder") is not None:
            self.decoder_explained_ = record["decoder"]
        support = record.get("support")
        self.support_ = None if support is None else Support(**support)
        axes = record.get("axes")
        self._set_axes(None if axes is None else Axes.from_dict(axes))

    def _restore(self, tensors: dict[str, Tensor]) -> None:
        self.history_ = steps_from_tensor(tensors["history"])
        noisy = "noise" in self.relaxed_
        if isinstance(self.encoder, str):
            encoder = {
                k.removeprefix("encoder."): v for k, v in tensors.items() if k.startswith("encoder")
            }
            options: dict[str, Any] = {"counts": bool(self.counts)}
            place = (self.encoder, self._window_shape, self.beliefs_, self.n_components)
            if not noisy:
                options["factor_scale"] = "factor_scale" in self.relaxed_
                options["capacity"] = self.capacity_
            if self._columns is None:
                build = build_noisy_encoder if noisy else build_encoder
                whitening = saved_whitening(encoder, self._window_shape)
                self.encoder_ = build(*place, whitening=whitening, **options)
            else:
                widths = [self.window * columns for columns in self._columns]
                self.encoder_ = build_recording_encoders(
                    *(self.encoder, widths, self.beliefs_, self.n_components),
                    [
                        saved_whitening(_of_recording(encoder, k), (w,))
                        for k, w in enumerate(widths)
                    ],
                    **options,
                )
            self.encoder_.to(self._dtype)
        else:
            encoder_given = self._given_encoder()
            assert isinstance(encoder_given, nn.Module)
            self.encoder_ = deepcopy(encoder_given)
            if noisy:
                self.encoder_ = build_noisy_encoder(
                    encoder_given, self._window_shape, self.beliefs_, self.n_components
                )
        if noisy:
            assert isinstance(self.encoder_, nn.Sequential)
            self.encoder_.append(FirstCodes(self.n_components))
        if self.axes_ is not None and self.axes_.separates:
            self.encoder_ = append_axes(self.encoder_, LinearAxes(self.n_components))
        self.encoder_.eval()
        if isinstance(self.loss, str):
            self.loss_ = build_objective(
                self.loss, self.beliefs_, self.n_components, self.potentials, self.relaxed_
            )
        else:
            self.loss_ = deepcopy(self.loss)
            if isinstance(self.loss_, ContrastiveLoss):
                attach(self.loss_, self.relaxed_, self.n_components, dtype_of(self.encoder_))
        modules = [("encoder.", self.encoder_), ("loss.", self.loss_)]
        if hasattr(self, "decoder_explained_"):
            self.decoder_ = CodeDecoder(self.n_components, math.prod(self._shape)).eval()
            modules.append(("decoder.", self.decoder_))
        for prefix, module in modules:
            module.load_state_dict(
                {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
            )


def _of_recording(tensors: Mapping[str, Tensor], k: int) -> dict[str, Tensor]:
    """Return the tensors of the encoder of one recording, of those of all."""
    prefix = f"0.encoders.{k}."
    return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}
