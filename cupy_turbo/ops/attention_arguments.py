"""What every attention kernel checks of its arguments."""

from __future__ import annotations

from dataclasses import dataclass

from cupy_turbo.core.protocols import Array
from cupy_turbo.ops.check import INT32, check

MAX_HEAD_DIM = 256


@dataclass(frozen=True, slots=True)
class AttentionArguments:
    """Sizes of a paged attention and the C name of its element type."""

    tokens: int
    rows: int
    head_dim: int
    num_kv_heads: int
    block_size: int
    max_blocks: int
    type_name: str


def attention_arguments(
    op: str,
    out: Array,
    qkv: Array,
    k_cache: Array,
    v_cache: Array,
    block_table: Array,
    perm: Array,
    context_len: Array,
    num_heads: int,
) -> AttentionArguments:
    """Check the arguments that all attention kernels share.

    Raises
    ------
    ValueError
        If a shape does not match, the head size is not a multiple of 8 up to 256, or `num_heads` is not a multiple of
        the KV heads.
    TypeError
        If a dtype does not match.
    """
    dims = check(
        op,
        out=(out, "T Q"),
        qkv=(qkv, "T W"),
        k_cache=(k_cache, "NB G B D"),
        v_cache=(v_cache, "NB G B D"),
        block_table=(block_table, "S MB", INT32),
        perm=(perm, "R", INT32),
        context_len=(context_len, "R", INT32),
    )
    if dims.D % 8 != 0 or not 8 <= dims.D <= MAX_HEAD_DIM:
        raise ValueError(f"{op}: head_dim is {dims.D}, must be a multiple of 8 from 8 to {MAX_HEAD_DIM}")
    if dims.G < 1 or num_heads < 1 or num_heads % dims.G != 0:
        raise ValueError(f"{op}: num_heads is {num_heads}, must be a positive multiple of the {dims.G} KV heads")
    for name, width, expected in (
        ("out", dims.Q, num_heads * dims.D),
        ("qkv", dims.W, (num_heads + 2 * dims.G) * dims.D),
    ):
        if width != expected:
            raise ValueError(
                f"{op}: {name} has {width} columns, expected {expected} for {num_heads} heads, {dims.G} KV heads and "
                f"head_dim {dims.D}"
            )
    return AttentionArguments(dims.T, dims.R, dims.D, dims.G, dims.B, dims.MB, dims.type_name)


def power_of_two(count: int) -> int:
    """Smallest power of two that is at least `count`, which is >= 1."""
    return 1 << (count - 1).bit_length()
