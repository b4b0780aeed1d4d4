"""Pairs as one array, which transformers of a pipeline act on as they do on rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Self, TypeVar, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

__all__ = ["PairedTransformer", "is_stacked", "routes_positives", "split_stacked"]

Method = TypeVar("Method", bound=Callable[..., Any])


def is_stacked(X: Any) -> bool:
    """Return whether an array has the shape of stacked pairs, (N, 2, m) or (N, 2, C, H, W).

    Example:
        >>> is_stacked(np.zeros((5, 2, 3))), is_stacked(np.zeros((5, 3, 64, 64)))
        (True, False)
    """
    shape: Any = getattr(X, "shape", ())
    return len(shape) in (3, 5) and shape[1] == 2


def split_stacked(X: Any, X_pos: Any) -> tuple[Any, Any]:
    """Return the anchors and the positives of stacked pairs; other arguments as they are."""
    if X_pos is None and is_stacked(X):
        return X[:, 0], X[:, 1]
    return X, X_pos


def routes_positives(method: Method) -> Method:
    """Let a method (X, X_pos) be called as scikit-learn's pipelines do, (X, None, X_pos=X_pos).

    A pipeline passes y by position, None if there is none, and metadata by name.
    """

    @wraps(method)
    def call(self: Any, X: Any, *args: Any, **options: Any) -> Any:
        if len(args) == 1 and args[0] is None and "X_pos" in options:
            args = ()
        return method(self, X, *args, **options)

    return cast(Method, call)


class PairedTransformer(  # type: ignore[call-arg]
    TransformerMixin, BaseEstimator, auto_wrap_output_keys=None
):
    """Apply a transformer of rows to both observations of each pair, as one.

    A transformer in a pipeline sees X alone, so that positives given beside X would be on another
    scale than their anchors. In a stack (N, 2, m) they are one array: ``X[:, 0]`` are the anchors,
    and ``X[:, 1]`` their positives. The transformer is fitted to all 2 N rows.

    Args:
        transformer: A transformer of rows (N, m), such as ``StandardScaler()``.

    Attributes:
        transformer_: The fitted transformer.

    Example:
        >>> from sklearn.pipeline import make_pipeline
        >>> from sklearn.preprocessing import StandardScaler
        >>> import isolatent as iso
        >>> world = iso.World(iso.Box(2), iso.Uniform(), iso.Normal(0.1), iso.Linear(), seed=0)
        >>> x, x_pos = (np.asarray(part) for part in world.sample_pairs(500))
        >>> recipe = iso.Recipe(max_steps=20, batch_size=64, warmup=2)
        >>> line = make_pipeline(
        ...     iso.PairedTransformer(StandardScaler()),
        ...     iso.ContrastiveICA(2, space="box", recipe=recipe, random_state=0),
        ... )
        >>> line.fit(np.stack([x, x_pos], axis=1)).transform(x).shape  # rows of one sort again
        (500, 2)
    """

    def __init__(self, transformer: Any) -> None:
        self.transformer = transformer

    def fit(self, X: ArrayLike | Tensor, y: None = None) -> Self:
        """Fit the transformer to the rows of both sides.

        Args:
            X: Pairs (N, 2, m), or rows (N, m).
            y: Must be None: positives that are passed beside X could not be transformed.
        """
        if y is not None:
            raise ValueError(
                "X_pos must be None for a PairedTransformer, which cannot pass it on: stack pairs, "
                "np.stack([X, X_pos], axis=1), and fit to that"
            )
        rows, _ = _rows(X)
        self.transformer_ = clone(self.transformer).fit(rows)
        return self

    def transform(self, X: ArrayLike | Tensor) -> NDArray[Any]:
        """Transform pairs (N, 2, m) to pairs, and rows (N, m) to rows."""
        check_is_fitted(self, "transformer_")
        return _apply(self.transformer_.transform, X)

    def inverse_transform(self, X: ArrayLike | Tensor) -> NDArray[Any]:
        """Undo :meth:`transform`, if the transformer can."""
        check_is_fitted(self, "transformer_")
        return _apply(self.transformer_.inverse_transform, X)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags


def _rows(X: Any) -> tuple[Any, tuple[int, int] | None]:
    """Return rows (N, m), and the first two sizes of a stack of pairs."""
    if isinstance(X, Tensor):
        X = X.detach().cpu().numpy()
    shape = np.shape(X)
    if len(shape) == 2:
        return X, None
    if len(shape) != 3 or shape[1] != 2:
        raise ValueError(f"X must have shape (N, 2, m), pairs, or (N, m), rows, got {shape}")
    return np.asarray(X).reshape(-1, shape[2]), (shape[0], 2)


def _apply(function: Callable[[Any], Any], X: Any) -> NDArray[Any]:
    rows, pairs = _rows(X)
    transformed = function(rows)
    if pairs is None:
        return transformed
    if hasattr(transformed, "toarray"):  # a sparse matrix
        transformed = transformed.toarray()
    return np.asarray(transformed).reshape(*pairs, -1)
