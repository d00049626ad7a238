"""Tiny random Llamas give transformers' float32 logits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cupy_turbo.testing.forward import Forward

CASES = sorted(path.parent for path in Path(__file__).parent.glob("*/logits.npz"))


@pytest.mark.parametrize("folder", CASES, ids=lambda folder: folder.name)
@pytest.mark.parametrize("chunk", [None, 5])
def test_logits_match_transformers(folder, chunk, device):
    """Relative error over all positions of every prompt, whole or in chunks behind a cached prefix."""
    reference = np.load(folder / "logits.npz")
    forward = Forward(folder, device, max_tokens=128, chunk=chunk)
    prompts = [name.removeprefix("ids_") for name in reference.files if name.startswith("ids_")]
    assert prompts
    for name in prompts:
        expected = reference[f"logits_{name}"]
        actual = forward(reference[f"ids_{name}"])
        error = np.linalg.norm(actual - expected) / np.linalg.norm(expected)
        assert error < 1e-4, (name, error)


def test_three_shapes_are_covered():
    assert len(CASES) >= 3
