"""Fitted models in notebooks: a card above scikit-learn's diagram."""

from __future__ import annotations

from typing import Any

from sklearn.base import BaseEstimator

from isolatent.cards import Row, card
from isolatent.theory import Guarantee
from isolatent.theory.assumptions import ASSUMPTION_KINDS
from isolatent.training.progress import Step

__all__ = ["ShownInNotebooks"]


class ShownInNotebooks(BaseEstimator):
    """An estimator that is shown as a card, with scikit-learn's diagram below it.

    It is the diagram alone before a fit, and a text if scikit-learn is set to show texts.
    """

    n_components: int
    n_features_in_: int
    declaration: str
    guarantee_: Guarantee
    relaxed_: tuple[str, ...]
    history_: list[Step]

    def _repr_html_inner(self) -> str:
        diagram: str = super()._repr_html_inner()
        return self._card() + diagram if hasattr(self, "guarantee_") else diagram

    def _repr_mimebundle_(self, **options: Any) -> dict[str, Any]:
        bundle: dict[str, Any] = super()._repr_mimebundle_(**options)
        if "text/html" in bundle:
            bundle["text/html"] = self._repr_html_inner()
        return bundle

    def _card(self) -> str:
        """Return what was fitted and what may be claimed."""
        found = self.guarantee_
        claim = f"No guarantee: {found.gap}"
        if found.equivalence:
            claim = f"Codes equal the factors up to: {found.equivalence}, if its assumptions hold"
        rows: list[Row] = [
            ("fit", f"{self.n_features_in_} columns to {self.n_components} codes"),
            ("declared", self.declaration),
            *([("relaxed", ", ".join(self.relaxed_))] if self.relaxed_ else []),
            *(("learned", sentence) for sentence in found.learned),
            *([("axes", found.axes)] if found.axes else []),
            ("score", found.metric),
            *([("training", training)] if (training := self._training_text()) else []),
            *(("warning", warning, "no") for warning in found.warnings),
        ]
        assumptions = [(ASSUMPTION_KINDS[one.kind], one.text) for one in found.assumptions]
        return card(
            type(self).__name__,
            claim,
            rows,
            status=found.mark,
            folded=assumptions,
            summary="Assumptions",
        )

    def _training_text(self) -> str:
        history = getattr(self, "history_", None)
        if not history:
            return ""
        held_out = [step.held_out for step in history if step.held_out is not None]
        shared = [one for step in history if (one := step.held_out_information) is not None]
        last = f", held-out loss {held_out[-1]:.3f}, lowest {min(held_out):.3f}" if held_out else ""
        if shared and history[-1].information is not None:  # comparable with that of batches
            last = f", held-out information ≥ {shared[-1]:.2f} nats, highest {max(shared):.2f}"
        return f"{history[-1].number} steps{last}"
