"""The sampler keeps the tokens that transformers' warpers keep (see tools/make_sampler_file.py)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cupy_turbo.core.protocols import Device
from cupy_turbo.core.stream import Stream
from cupy_turbo.ops.sample import sample
from cupy_turbo.testing.reference_sampling import sampling_weights

FILE = np.load(Path(__file__).parent / "sampler.npz")
LOGITS, PARAMETERS, VOCAB, KEPT = (FILE[name] for name in ("logits", "parameters", "vocab", "kept"))


def weights_of(case: int) -> np.ndarray:
    temperature, top_k, top_p, min_p = map(float, PARAMETERS[case])
    return sampling_weights(LOGITS[case, : VOCAB[case]], temperature, int(top_k), top_p, min_p)


def test_the_oracle_keeps_the_same_tokens() -> None:
    for case, kept in enumerate(KEPT):
        assert np.array_equal(weights_of(case) > 0, kept[: VOCAB[case]]), PARAMETERS[case]


def test_the_kernel_draws_only_kept_tokens_and_every_likely_one(device: Device) -> None:
    cases, draws = len(KEPT), 64
    logits = np.where(np.arange(KEPT.shape[1]) < VOCAB[:, None], LOGITS, np.float32(-np.inf))
    temperature, top_k, top_p, min_p = np.repeat(PARAMETERS, draws, axis=0).T
    parameters = (temperature, top_k.astype(np.int32), top_p, min_p, np.tile(np.arange(draws, dtype=np.uint64), cases))
    slots = device.upload(np.arange(cases * draws, dtype=np.int32))
    zeros = device.upload(np.zeros(cases * draws, np.int32))
    tokens, stream = device.empty((cases * draws,), np.int32), Stream.create(device=device)
    state = [device.upload(np.ascontiguousarray(values)) for values in parameters]
    rows = device.upload(np.repeat(logits, draws, axis=0))
    sample(tokens, rows, slots, zeros, zeros, *state, vocab_limit=logits.shape[1], stream=stream)
    for case, drawn in enumerate(device.fetch(tokens).reshape(cases, draws)):
        assert KEPT[case, drawn].all(), PARAMETERS[case]
        weights = weights_of(case)
        assert set(np.flatnonzero(weights > 0.25 * weights.sum())) <= set(drawn.tolist()), PARAMETERS[case]
