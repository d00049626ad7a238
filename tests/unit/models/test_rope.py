"""Rotary tables equal transformers' own, whatever the scaling; tools/make_parity_files.py made the figures."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from cupy_turbo.models.config import ModelConfig
from cupy_turbo.models.rope import rope_table
from cupy_turbo.models.rope_config import RopeConfig

REFERENCE = np.load(Path(__file__).parents[2] / "parity" / "rope.npz")
NAMES = [name.removesuffix("_config") for name in REFERENCE.files if name.endswith("_config")]
POSITIONS = REFERENCE["positions"]
# A frequency may differ by one unit in the last place of float32, which the position multiplies.
TOLERANCE = (1.2e-7 * (POSITIONS + 5))[:, None]


def read(name: str) -> ModelConfig:
    return ModelConfig.from_hf(json.loads(str(REFERENCE[f"{name}_config"])))


@pytest.mark.parametrize("name", NAMES)
def test_table_equals_transformers(name: str) -> None:
    config = read(name)
    table = rope_table(config, int(POSITIONS[-1]) + 1)
    assert table.shape == (POSITIONS[-1] + 1, config.head_dim)
    assert table.dtype == np.float32
    half = config.head_dim // 2
    assert (np.abs(table[POSITIONS, :half] - REFERENCE[f"{name}_cos"]) <= TOLERANCE).all()
    assert (np.abs(table[POSITIONS, half:] - REFERENCE[f"{name}_sin"]) <= TOLERANCE).all()


def test_every_scaling_type_is_compared() -> None:
    assert {read(name).rope.type for name in NAMES} == {"default", "linear", "dynamic", "llama3", "yarn"}


def test_the_comparison_notices_an_ignored_scaling() -> None:
    for name in NAMES:
        config = read(name)
        if config.rope.type != "default":
            plain = dataclasses.replace(config, rope=RopeConfig(theta=config.rope.theta))
            table = rope_table(plain, int(POSITIONS[-1]) + 1)
            assert (np.abs(table[POSITIONS, :32] - REFERENCE[f"{name}_cos"]) > TOLERANCE).any()


def test_dynamic_scaling_changes_nothing_within_the_original_context() -> None:
    config = read("dynamic")
    plain = dataclasses.replace(config, rope=RopeConfig(theta=config.rope.theta))
    assert np.array_equal(rope_table(config, 4096), rope_table(plain, 4096))


def test_factors_of_a_gguf_file_divide_the_frequencies() -> None:
    """llama.cpp stores the llama3 scaling as one divisor a frequency; both ways must meet."""
    config = read("llama3")
    plain = dataclasses.replace(config, rope=RopeConfig(theta=config.rope.theta))
    scaled, unscaled = (np.arcsin(rope_table(each, 2)[1, 32:].astype(np.float64)) for each in (config, plain))
    scaled[0] = unscaled[0] = 1.0  # sin(1 radian): the first frequency is never scaled
    factors = RopeConfig(type="factors", theta=config.rope.theta, frequency_factors=tuple(unscaled / scaled))
    table = rope_table(dataclasses.replace(config, rope=factors), 64)
    assert np.allclose(table, rope_table(config, 64), atol=2e-5)
