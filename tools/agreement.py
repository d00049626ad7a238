"""Measure teacher-forced top-1 agreement of the demo model's 16-bit runs with its float32 run on a text.

    python tools/agreement.py corpus.txt [--device cuda] [--share 0.05] [--transformers]

Reads the last share of the text in windows of 256 tokens. With --transformers (needs torch and transformers) the same
figure of transformers' own bfloat16 against its own float32 is printed beside it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from cupy_turbo.checkpoint.presets import DEMO_FOLDER
from cupy_turbo.device import open_device
from cupy_turbo.testing.agreement import NextLogits, top1_agreement, top_choices
from cupy_turbo.testing.forward import Forward
from cupy_turbo.text.tokenizer import open_tokenizer

WINDOW = 256


def transformers_logits(dtype: str) -> NextLogits:
    """Return the same model, run by transformers."""
    import torch
    from transformers import LlamaForCausalLM

    place = "cuda" if torch.cuda.is_available() else "cpu"
    model = LlamaForCausalLM.from_pretrained(DEMO_FOLDER, dtype=getattr(torch, dtype)).to(place).eval()

    def logits_of(ids: object) -> np.ndarray:
        with torch.no_grad():
            return model(torch.tensor([list(ids)], device=place)).logits[0].float().cpu().numpy()  # type: ignore[call-overload]

    return logits_of


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--share", type=float, default=0.05)
    parser.add_argument("--transformers", action="store_true")
    arguments = parser.parse_args()
    ids = open_tokenizer(DEMO_FOLDER).encode(arguments.text.read_text())
    ids = ids[-int(len(ids) * arguments.share) :]
    with open_device(arguments.device) as device:
        chosen = {
            dtype: top_choices(Forward("demo", device, dtype=dtype, max_tokens=WINDOW), ids, WINDOW)
            for dtype in ("float32", "bfloat16", "float16")
        }
        for dtype in ("bfloat16", "float16"):
            share = top1_agreement(chosen["float32"], chosen[dtype])
            print(f"{device.name}: {dtype} agrees with float32 at {100 * share:.2f} % of {len(ids):,} positions")
    if arguments.transformers:
        theirs = {dtype: top_choices(transformers_logits(dtype), ids, WINDOW) for dtype in ("float32", "bfloat16")}
        share = top1_agreement(theirs["float32"], theirs["bfloat16"])
        print(f"transformers: bfloat16 agrees with float32 at {100 * share:.2f} %")
        same = top1_agreement(chosen["float32"], theirs["float32"])
        print(f"float32 here agrees with transformers' float32 at {100 * same:.3f} %")


if __name__ == "__main__":
    main()
