"""Random weights have real shapes and sane numbers, and depend on the seed only."""

from __future__ import annotations

import dataclasses

import numpy as np

from cupy_turbo.checkpoint import open_checkpoint
from cupy_turbo.core.protocols import Device
from cupy_turbo.models.weights import LlamaWeights, load_weights


def draw(device: Device, seed: int) -> LlamaWeights:
    checkpoint = open_checkpoint("random:tiny")
    return load_weights(checkpoint, checkpoint.config, device, np.dtype(np.float32), seed=seed)


def matrices(device: Device, weights: LlamaWeights) -> list[np.ndarray]:
    layers = [getattr(layer, field.name) for layer in weights.layers for field in dataclasses.fields(layer)]
    return [device.fetch(array) for array in [weights.embed, *layers] if array.ndim == 2]


def test_matrices_are_normal_and_norms_are_one(device: Device) -> None:
    weights = draw(device, 0)
    for matrix in matrices(device, weights):
        assert np.isfinite(matrix).all()
        assert abs(matrix.mean()) < 5 * 0.02 / matrix.size**0.5
        assert abs(matrix.std() / 0.02 - 1) < 0.05
    for norm in (weights.norm, weights.layers[1].attn_norm, weights.layers[0].mlp_norm):
        assert (device.fetch(norm) == 1).all()
    assert weights.lm_head is weights.embed


def test_same_seed_same_weights_and_no_two_arrays_alike(device: Device) -> None:
    first, again, other = (matrices(device, draw(device, seed)) for seed in (0, 0, 1))
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    starts = {tuple(matrix.reshape(-1)[:8]) for matrix in first + other}
    assert len(starts) == len(first) + len(other)
