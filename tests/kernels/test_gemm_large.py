"""gemm_large.cu against its oracle for every tile, and the choice of the tile."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cupy_turbo.core.dtypes import DType, bfloat16, float16, float32
from cupy_turbo.core.protocols import Device
from cupy_turbo.core.stream import Stream
from cupy_turbo.ops.gemm_large import TILES, Tile, choose_tile, gemm_large
from cupy_turbo.testing.arrays import Guarded, assert_close
from cupy_turbo.testing.examples import examples
from cupy_turbo.testing.reference_gemm import gemm

SMALL_TILE = TILES[-1]


def draw(dtype: DType, m: int, n: int, k: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(m, k)).astype(dtype), rng.normal(size=(n, k)).astype(dtype)


def run(
    device: Device, stream: Stream, x: np.ndarray, weight: np.ndarray, out_dtype: DType, tile: Tile | None
) -> np.ndarray:
    """Multiply, with NaN around every array."""
    out = Guarded(device, (len(x), len(weight)), out_dtype)
    operands = [Guarded(device, values.shape, values.dtype, values).array for values in (x, weight)]
    gemm_large(out.array, *operands, tile=tile, stream=stream)
    return out.fetch()


@pytest.mark.parametrize("tile", TILES, ids=lambda tile: tile.define)
@pytest.mark.parametrize("k_stages", [0.5, 1, 2.125, 7.75])
def test_every_tile_matches_the_oracle(device: Device, stream: Stream, tile: Tile, k_stages: float) -> None:
    # A second, ragged tile along each side; fewer and more stages than the ring has, the last one cut.
    m, n, k = tile.rows + 3, tile.columns + 21, int(tile.depth * k_stages)
    if k_stages > 3 and tile.rows * tile.columns > 64 * 64:
        m, n = 5, 33  # emulated tensor cores are slow
    x, weight = draw(bfloat16, m, n, k, seed=k)
    assert_close(run(device, stream, x, weight, bfloat16, tile), gemm(x, weight))


@settings(max_examples=examples(30))
@given(
    types=st.sampled_from([(float16, float32), (bfloat16, bfloat16)]),
    m=st.integers(0, 50),
    n=st.integers(0, 70),
    k=st.integers(0, 40).map(lambda k8: 8 * k8) | st.integers(0, 300),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_shape_matches_the_oracle(
    device: Device, stream: Stream, types: tuple[DType, DType], m: int, n: int, k: int, seed: int
) -> None:
    x, weight = draw(types[0], m, n, k, seed)
    assert_close(run(device, stream, x, weight, types[1], SMALL_TILE), gemm(x, weight))


def test_many_row_tiles_are_dealt_out_in_groups(device: Device, stream: Stream) -> None:
    x, weight = draw(float16, 37 * 16 - 5, 3 * 32 - 1, 64, seed=2)  # 37 row tiles: two groups of 16 and one of 5
    assert_close(run(device, stream, x, weight, float16, SMALL_TILE), gemm(x, weight))


def test_the_chosen_tile_is_used(device: Device, stream: Stream) -> None:
    x, weight = draw(bfloat16, 17, 40, 128, seed=4)
    assert_close(run(device, stream, x, weight, float32, None), gemm(x, weight))


@given(
    m=st.integers(1, 20000),
    n=st.integers(1, 200000),
    k=st.integers(1, 30000),
    processors=st.integers(1, 200),
    limit=st.sampled_from([99, 163, 227]),
)
def test_a_chosen_tile_fits_the_shared_memory(m: int, n: int, k: int, processors: int, limit: int) -> None:
    tile = choose_tile(m, n, k, processors=processors, shared_limit=limit * 1024)
    assert tile.shared_bytes <= limit * 1024
    assert tile.stages >= 2


@pytest.mark.parametrize(("n", "k"), [(6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)])
def test_h200_tiles_grow_with_the_rows_and_leave_no_processor_idle(n: int, k: int) -> None:
    tiles = [choose_tile(m, n, k, processors=132, shared_limit=227 * 1024) for m in (8, 16, 64, 256, 2048, 8192)]
    areas = [tile.rows * tile.columns for tile in tiles]
    assert areas == sorted(areas)
    for m, tile in zip((8, 16, 64, 256, 2048, 8192), tiles, strict=True):
        assert -(-m // tile.rows) * -(-n // tile.columns) >= 90, f"{m} rows"


def test_float32_is_refused(device: Device, stream: Stream) -> None:
    x, weight = device.empty((9, 8), float32), device.empty((3, 8), float32)
    with pytest.raises(TypeError, match="gemm_large: x is float32, expected float16 or bfloat16; use gemm_float32"):
        gemm_large(device.empty((9, 3), float32), x, weight, stream=stream)
