"""Make tests/parity/sampler.npz: which tokens transformers' logits warpers keep.

    pip install torch transformers        # made with torch 2.13 (CPU) and transformers 5.24
    python tools/make_sampler_file.py tests/parity/sampler.npz

`logits` (cases, V) float32; `parameters` (cases, 4) float32: temperature, top_k, top_p, min_p; `vocab` (cases,) int32,
the columns in use; `kept` (cases, V) bool. No two logits of a case are equal, because transformers' top-p cuts a tie
in an order that nobody promises, and no probability sum is so near to top_p that rounding decides.
"""

from __future__ import annotations

import sys

import numpy as np
import torch
from transformers.generation.logits_process import (
    LogitsProcessorList,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

CASES, WIDTH = 300, 120


def kept_tokens(logits: np.ndarray, temperature: float, top_k: int, top_p: float, min_p: float) -> np.ndarray:
    warpers = LogitsProcessorList([TemperatureLogitsWarper(temperature)])
    if top_k:
        warpers.append(TopKLogitsWarper(top_k))
    if top_p < 1:
        warpers.append(TopPLogitsWarper(top_p))
    if min_p:
        warpers.append(MinPLogitsWarper(min_p))
    return torch.isfinite(warpers(None, torch.from_numpy(logits)[None])[0]).numpy()


def main(path: str) -> None:
    rng = np.random.default_rng(20240607)
    logits = np.zeros((CASES, WIDTH), np.float32)
    parameters = np.zeros((CASES, 4), np.float32)
    vocab, kept = np.zeros(CASES, np.int32), np.zeros((CASES, WIDTH), bool)
    case = 0
    while case < CASES:
        size = int(rng.integers(1, WIDTH + 1))
        row = (rng.normal(size=size) * rng.choice([0.2, 1.0, 4.0])).astype(np.float32)
        drawn = (rng.choice([0.3, 0.7, 1.0, 1.7]), rng.choice([0, 1, 5, 50, 1000]), rng.choice([1, 0.95, 0.6, 1e-4]),
                 rng.choice([0, 0.05, 0.3]))  # fmt: skip
        temperature, top_k, top_p, min_p = (float(np.float32(value)) for value in drawn)
        masks = [
            kept_tokens(row, temperature, int(top_k), share, min_p) for share in (top_p, top_p - 1e-5, top_p + 1e-5)
        ]
        if len(np.unique(row)) < size or (
            top_p < 1 and not (masks[0] == masks[1]).all() & (masks[0] == masks[2]).all()
        ):
            continue
        logits[case, :size], kept[case, :size] = row, masks[0]
        parameters[case], vocab[case] = (temperature, top_k, top_p, min_p), size
        case += 1
    np.savez_compressed(path, logits=logits, parameters=parameters, vocab=vocab, kept=kept)


if __name__ == "__main__":
    main(sys.argv[1])
