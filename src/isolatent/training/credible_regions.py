"""Regions that hold the factors of an observation with a given probability."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from isolatent.checks import check_one_of, check_real
from isolatent.contrast.posteriors import GEOMETRIES
from isolatent.contrast.vmf import cap_angle

__all__ = ["CredibleRegions"]


@dataclass(frozen=True, eq=False)
class CredibleRegions:
    r"""One region for each observation, in the coordinates of the codes.

    On a sphere a region is a cap around the code, whose angle holds ``level`` of the mass of a vMF.
    For free codes it is the ellipsoid :math:`\sum_k (z_k - h_k)^2 / \sigma_k^2 \le \chi^2_n` around
    the code.

    Args:
        codes: Centres of the regions (N, n).
        spread: Standard deviations (N, n) of free codes; concentrations (N,) on a sphere.
        level: The probability, between 0 and 1.
        geometry: ``"sphere"`` or ``"free"``.

    Attributes:
        size: The angle (N,) of each cap, in rad; for free codes the radius of the ellipsoids, in
            standard deviations, (N,).

    Example:
        >>> regions = CredibleRegions([[0.0, 0.0]], [[1.0, 0.1]], 0.9, "free")
        >>> regions.size.round(3), regions.contains([[2.0, 0.0]]), regions.contains([[0.0, 2.0]])
        (array([2.146]), array([ True]), array([False]))
    """

    codes: np.ndarray[Any, Any]
    spread: np.ndarray[Any, Any]
    level: float
    geometry: str

    def __post_init__(self) -> None:
        check_one_of("geometry", self.geometry, GEOMETRIES)
        check_real("level", self.level, above=0, below=1)
        codes, spread = np.asarray(self.codes, float), np.asarray(self.spread, float)
        expected = codes.shape[:1] if self.geometry == "sphere" else codes.shape
        if codes.ndim != 2 or spread.shape != expected:
            raise ValueError(
                f"spread must have shape {expected} for codes {codes.shape}, got {spread.shape}"
            )
        object.__setattr__(self, "codes", codes)
        object.__setattr__(self, "spread", spread)

    @property
    def size(self) -> np.ndarray[Any, Any]:
        n = self.codes.shape[1]
        if self.geometry == "sphere":
            return cap_angle(self.spread, self.level, n)
        return np.full(len(self.codes), float(np.sqrt(stats.chi2.ppf(self.level, n))))

    def contains(self, codes: ArrayLike) -> np.ndarray[Any, Any]:
        """Return whether the codes (N, n), one for each region, lie in it.

        True factors must be mapped to codes first, by the map that the guarantee leaves open. Codes
        on a sphere may have any length.

        Args:
            codes: One row for each region.
        """
        given = np.asarray(codes, float)
        if given.shape != self.codes.shape:
            raise ValueError(f"codes must have shape {self.codes.shape}, got {given.shape}")
        if self.geometry == "sphere":
            cosine = (given * self.codes).sum(1) / np.linalg.norm(given, axis=1)
            inside: np.ndarray[Any, Any] = np.arccos(np.clip(cosine, -1, 1)) <= self.size
            return inside
        distance: np.ndarray[Any, Any] = np.linalg.norm((given - self.codes) / self.spread, axis=1)
        return distance <= self.size
