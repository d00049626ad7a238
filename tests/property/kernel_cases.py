"""One small launch of every kernel, from a seed, for laws that all of them keep."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from cupy_turbo.core.dtypes import bfloat16, float16
from cupy_turbo.core.protocols import Array, Device
from cupy_turbo.core.stream import Stream
from cupy_turbo.device.host import HostDevice
from cupy_turbo.ops.add_rms_norm import add_rms_norm
from cupy_turbo.ops.argmax import argmax
from cupy_turbo.ops.attention_combine import attention_combine
from cupy_turbo.ops.attention_decode import attention_decode, attention_decode_scratch
from cupy_turbo.ops.attention_prefill import attention_prefill
from cupy_turbo.ops.attention_prefill_simt import attention_prefill_simt
from cupy_turbo.ops.block_table_update import block_table_update
from cupy_turbo.ops.commit_tokens import commit_tokens
from cupy_turbo.ops.embedding import embedding
from cupy_turbo.ops.gather_rows import gather_rows
from cupy_turbo.ops.gemm_float32 import gemm_float32
from cupy_turbo.ops.gemm_large import TILES, gemm_large
from cupy_turbo.ops.gemm_small import gemm_small
from cupy_turbo.ops.random_normal import random_normal
from cupy_turbo.ops.rms_norm import rms_norm
from cupy_turbo.ops.rope_kv_write import rope_kv_write
from cupy_turbo.ops.sample import sample
from cupy_turbo.ops.silu_mul import silu_mul
from cupy_turbo.ops.slot_init import slot_init
from cupy_turbo.testing.paged_case import PagedCase, draw_paged_case


class WideHost(HostDevice):
    """The host with the launch sizes of a GPU: many warps a block, where the host's own have one."""

    kind = "wide"


class Launch:
    """Where a case runs: it draws and uploads, launches, and tells which arrays were written."""

    def __init__(self, device: Device, seed: int) -> None:
        self.device, self.stream = device, Stream.create(device=device)
        self.rng = np.random.default_rng(seed)

    def normal(self, *shape: int, dtype: Any = np.float32) -> Array:
        return self.device.upload(self.rng.normal(size=shape).astype(dtype))

    def integers(self, low: int, high: int, *shape: int) -> Array:
        return self.device.upload(self.rng.integers(low, high, shape).astype(np.int32))

    def places(self, count: int, among: int) -> Array:
        """Different numbers, some of them -1."""
        chosen = self.rng.permutation(among)[:count].astype(np.int32)
        chosen[self.rng.random(count) < 0.2] = -1
        return self.device.upload(chosen)

    def ints(self, *values: int) -> Array:
        return self.device.upload(np.array(values, np.int32))

    def empty(self, *shape: int, dtype: Any = np.float32) -> Array:
        poison = np.full(int(np.prod(shape)) * np.dtype(dtype).itemsize, 0x7B, np.uint8)
        return self.device.upload(poison.view(dtype).reshape(shape))


Case = Callable[[Launch], list[Array]]


def _rms_norm(on: Launch) -> list[Array]:
    out = on.empty(5, 1000)
    rms_norm(out, on.normal(5, 1000), on.normal(1000), eps=1e-6, stream=on.stream)
    return [out]


def _add_rms_norm(on: Launch) -> list[Array]:
    out, residual = on.empty(5, 1000), on.normal(5, 1000)
    add_rms_norm(out, residual, on.normal(5, 1000), on.normal(1000), eps=1e-6, stream=on.stream)
    return [out, residual]


def _silu_mul(on: Launch) -> list[Array]:
    out = on.empty(3, 700)
    silu_mul(out, on.normal(3, 1400), stream=on.stream)
    return [out]


def _embedding(on: Launch) -> list[Array]:
    out = on.empty(7, 300)
    embedding(out, on.normal(20, 300), on.integers(-4, 20, 7), on.integers(0, 20, 4), stream=on.stream)
    return [out]


def _gather_rows(on: Launch) -> list[Array]:
    out = on.empty(6, 300)
    gather_rows(out, on.normal(9, 300), on.integers(-1, 9, 6), stream=on.stream)
    return [out]


def _rope_kv_write(on: Launch) -> list[Array]:
    tokens, slots, max_blocks, block_size, head_dim = 9, 4, 3, 5, 32
    qkv, caches = on.normal(tokens, 4 * head_dim), [on.normal(12, 1, block_size, head_dim) for _ in range(2)]
    places = on.rng.permutation(slots * max_blocks * block_size)[:tokens].astype(np.int32)  # (slot, position) pairs
    positions, rows = places % (max_blocks * block_size), places // (max_blocks * block_size)
    state = (on.ints(*on.rng.permutation(slots)), on.ints(0, 0, 2, 0))
    blocks = on.device.upload(on.rng.permutation(slots * max_blocks).astype(np.int32).reshape(slots, max_blocks))
    tables = (on.normal(max_blocks * block_size, head_dim), on.ints(*positions), on.ints(*rows), *state, blocks)
    rope_kv_write(qkv, *caches, *tables, num_heads=2, stream=on.stream)
    return [qkv, *caches]


def _attend(on: Launch, dtype: Any, rows: list[tuple[int, int]]) -> tuple[PagedCase, Array, list[Array]]:
    sizes = {"head_dim": 64, "block_size": 16, "num_kv_heads": 2, "ratio": 3}
    case = draw_paged_case(dtype, **sizes, rows=rows, seed=int(on.rng.integers(1 << 30)), masked=(1,))
    arrays = [on.device.upload(a) for a in (case.qkv, case.k_cache, case.v_cache, case.block_table, case.perm)]
    return case, on.empty(len(case.qkv), case.num_heads * case.head_dim, dtype=dtype), arrays


def _attention_decode(on: Launch) -> list[Array]:
    case, out, arrays = _attend(on, np.float32, [(1, 150), (1, 3), (1, 70), (1, 1)])
    partial = on.empty(attention_decode_scratch(4, case.num_heads, case.head_dim, 3))
    state = (on.device.upload(case.finished), on.device.upload(case.context_len))
    sizes = {"num_heads": case.num_heads, "num_rows": 4, "num_splits": 3, "scale": case.scale}
    attention_decode(out, *arrays, *state, partial, **sizes, stream=on.stream)
    return [out]


def _attention_combine(on: Launch) -> list[Array]:
    out, splits, heads, head_dim = on.empty(2, 3 * 40), 4, 3, 40
    cells = 2 * heads * splits
    partial = np.concatenate([on.rng.normal(size=cells * head_dim), on.rng.uniform(1, 9, 2 * cells)])
    state = (on.ints(1, 0), on.ints(0, 0), on.ints(200, 250))
    shared = on.device.upload(partial.astype(np.float32))
    attention_combine(out, shared, *state, head_dim=head_dim, num_splits=splits, stream=on.stream)
    return [out]


def _prefill(on: Launch, op: Any, dtype: Any, **choice: Any) -> list[Array]:
    case, out, arrays = _attend(on, dtype, [(20, 33), (4, 9), (1, 70)])
    starts = (on.device.upload(case.query_start), on.device.upload(case.context_len))
    sizes = {"num_heads": case.num_heads, "first_row": 0, "num_rows": 3, "max_query_len": 20, "scale": case.scale}
    op(out, *arrays, *starts, **sizes, **choice, stream=on.stream)
    return [out]


def _attention_prefill(on: Launch) -> list[Array]:
    return _prefill(on, attention_prefill, bfloat16, use_tensor_cores=True)


def _attention_prefill_simt(on: Launch) -> list[Array]:
    return _prefill(on, attention_prefill_simt, np.float32)


def _gemm_small(on: Launch) -> list[Array]:
    out = on.empty(3, 50)
    gemm_small(out, on.normal(3, 256, dtype=bfloat16), on.normal(50, 256, dtype=bfloat16), stream=on.stream)
    return [out]


def _gemm_large(on: Launch) -> list[Array]:
    out = on.empty(20, 70, dtype=float16)
    operands = on.normal(20, 600, dtype=float16), on.normal(70, 600, dtype=float16)
    gemm_large(out, *operands, tile=TILES[-1], stream=on.stream)
    return [out]


def _gemm_float32(on: Launch) -> list[Array]:
    out = on.empty(70, 90)
    gemm_float32(out, on.normal(70, 40), on.normal(90, 40), stream=on.stream)
    return [out]


def _argmax(on: Launch) -> list[Array]:
    out, logits = on.empty(4, dtype=np.int32), on.device.upload(on.rng.integers(0, 9, (4, 900)).astype(np.float32))
    argmax(out, logits, on.integers(-1, 4, 4), on.ints(0, 0, 2, 0), vocab_limit=890, stream=on.stream)
    return [out]


def _sample(on: Launch) -> list[Array]:
    out, logits = on.empty(6, dtype=np.int32), on.device.upload(on.rng.normal(size=(6, 900)).astype(np.float32))
    floats = [on.device.upload(np.array(v, np.float32)) for v in ([1, 0, 2, 0.5], [1, 1, 0.9, 0.7], [0, 0, 0.1, 0])]
    seeds = on.device.upload(on.rng.integers(0, 1 << 60, 4).astype(np.uint64))
    temperature, top_p, min_p = floats
    state = (temperature, on.ints(0, 3, 40, 5), top_p, min_p, seeds)
    rows = (on.ints(0, 1, 2, 3, 2, -1), on.ints(5, 6, 7, 8, 9, 10), on.ints(0, 0, 0, 0))
    sample(out, logits, *rows, *state, vocab_limit=890, stream=on.stream)
    return [out]


def _commit_tokens(on: Launch) -> list[Array]:
    results = [on.empty(40, dtype=np.int32) for _ in range(2)]
    rows = (on.integers(-2, 5, 40), on.places(40, 43), on.integers(0, 6, 40))
    state = [on.integers(0, 9, 43), on.integers(0, 2, 43), on.integers(1, 6, 43), on.integers(-1, 5, 43, 4)]
    commit_tokens(*results, *rows, *state, stream=on.stream)
    return [*results, *state[:2]]


def _slot_init(on: Launch) -> list[Array]:
    kinds = (np.float32, np.int32, np.float32, np.float32, np.uint64, np.int32)
    fields = [on.empty(12, dtype=kind) for kind in kinds]
    values = [on.device.upload(on.rng.integers(0, 99, 7).astype(kind)) for kind in kinds]
    stop_ids, finished = on.empty(12, 32, dtype=np.int32), on.empty(12, dtype=np.int32)
    written = [*fields, stop_ids, finished]
    slot_init(*written, on.places(7, 12), *values, on.integers(-1, 99, 7, 32), stream=on.stream)
    return written


def _block_table_update(on: Launch) -> list[Array]:
    table = on.empty(8, 20, dtype=np.int32)
    places = on.rng.permutation(8 * 20)[:140].astype(np.int32)  # (slot, index) pairs, all different
    block_table_update(table, on.ints(*places // 20), on.ints(*places % 20), on.integers(0, 999, 140), stream=on.stream)
    return [table]


def _random_normal(on: Launch) -> list[Array]:
    out = on.empty(999)
    random_normal(out, std=2.0, seed=int(on.rng.integers(1 << 40)), stream=on.stream)
    return [out]


CASES: dict[str, Case] = {
    "add_rms_norm": _add_rms_norm,
    "argmax": _argmax,
    "attention_combine": _attention_combine,
    "attention_decode": _attention_decode,
    "attention_prefill": _attention_prefill,
    "attention_prefill_simt": _attention_prefill_simt,
    "block_table_update": _block_table_update,
    "commit_tokens": _commit_tokens,
    "embedding": _embedding,
    "gather_rows": _gather_rows,
    "gemm_float32": _gemm_float32,
    "gemm_large": _gemm_large,
    "gemm_small": _gemm_small,
    "random_normal": _random_normal,
    "rms_norm": _rms_norm,
    "rope_kv_write": _rope_kv_write,
    "sample": _sample,
    "silu_mul": _silu_mul,
    "slot_init": _slot_init,
}


def run_case(kernel: str, device: Device, seed: int) -> list[bytes]:
    """Launch a kernel's case; return all that it was given to write, to the bit."""
    return [device.fetch(array).tobytes() for array in CASES[kernel](Launch(device, seed))]
