"""NumPy float64 oracle of the matrix products."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray


def gemm(x: NDArray[Any], weight: NDArray[Any]) -> NDArray[np.float64]:
    """Return ``x @ weight.T``, not rounded.

    Examples
    --------
    >>> gemm(np.array([[1.0, 2.0]]), np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])).tolist()
    [[1.0, 2.0, 3.0]]
    """
    product: NDArray[np.float64] = x.astype(np.float64) @ weight.astype(np.float64).T
    return product
