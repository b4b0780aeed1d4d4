"""InfoNCE and its gradients as one compiled call, for a single thread.

At small batches each call of NumPy or of compiled code takes as long as a tenth of a pass.
"""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

from isolatent.contrast.kernels import fused, packing
from isolatent.contrast.kernels.fused import ROWS, backward_rows, forward_rows
from isolatent.contrast.kernels.packing import mean_gap, pack, pad_quotient, unpack

__all__ = ["infonce_in_one_call"]


def _kernel(sources: int) -> Any:
    """Return the function, compiled for a checksum of the source files as in `fused`."""

    @njit(error_model="numpy", nogil=True, cache=True)
    def infonce_in_one_call(  # type: ignore[no-untyped-def]  # numba infers the types
        form, reduction, both, p, u, v, w, a, b, m, skip, with_gradients
    ):
        _ = sources
        (pu, pa, pv, pb, pw, ps), valid = pack(u, v, w, a, b, skip, p == 0)
        rows, height, blocks = len(u), len(pu), len(pu) // ROWS
        # The initial top is finite, so that a row without columns has no inf - inf.
        lowest = np.finfo(u.dtype).min
        top, total = np.full(height, lowest, u.dtype), np.zeros(height, u.dtype)
        column_top, column_total = np.full(pb.shape, lowest, u.dtype), np.zeros_like(pb)
        diagonal = np.empty(height, u.dtype)
        forward_rows(
            form,
            reduction,
            0,
            blocks,
            pu,
            pa,
            m,
            pv,
            pb,
            pw,
            ps,
            top,
            total,
            column_top,
            column_total,
            diagonal,
        )
        positive = diagonal[:rows]
        value = mean_gap(top, total, positive)
        if both:
            value += mean_gap(column_top.ravel(), column_total.ravel(), positive)
            value *= 0.5
        gu, gv, gb = np.zeros_like(pu), np.zeros_like(pv), np.zeros_like(pb)
        ga, gm = np.zeros_like(pa), np.zeros_like(pa)
        if not with_gradients:
            return value, valid, (u, v, pw, ga, gb.ravel(), gm)
        share = np.full(rows, (0.5 if both else 1.0) / rows, u.dtype)
        g = pad_quotient(share, total)
        h = np.zeros_like(pb)
        if both:
            h = pad_quotient(share, column_total.ravel()).reshape(pb.shape)
        diagonal[:] = 0
        diagonal[:rows] = -1.0 / rows
        backward_rows(
            form,
            reduction,
            0,
            blocks,
            pu,
            pa,
            m,
            pv,
            pb,
            pw,
            ps,
            top,
            g,
            column_top,
            h,
            diagonal,
            (gu, ga, gm, gv, gb),
        )
        to_u, to_v, to_w = unpack(u, v, pw, p, gu, gv)
        return value, valid, (to_u, to_v, to_w, ga, gb.ravel(), gm)

    return infonce_in_one_call


_FILES = (*fused.FILES, packing.__file__, __file__)

#: The mean of log Σ_j e^s_ij - s_ii, whether u, v and the potentials are valid, and the gradients
#: to u, v, w, a, b and m, the last three padded; p is 0 for an inner product, and the other
#: arguments are those of `pack`, with m padded or None. Without gradients their place is filled by
#: other arrays.
infonce_in_one_call = _kernel(zlib.crc32(b"".join(Path(name).read_bytes() for name in _FILES)))
