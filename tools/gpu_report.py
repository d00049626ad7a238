"""Print what the engine does on a device: the overlap of copies and computation, allocations, and times per step.

    python tools/gpu_report.py overlap [--model demo] [--device cuda]
    python tools/gpu_report.py speed   [--model random:llama-3.1-8b] [--device cuda]

`overlap` runs 50 decode steps and prints, for each, when its inputs crossed the bus and when it computed; a step's copy
should lie inside the computation of the step before. It also counts allocations over those steps.
`speed` prints milliseconds per decode step at several batch sizes (context about 1,024) and per prefill of 2,048
tokens, beside the time that the bytes or the arithmetic alone would take.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable

import numpy as np

from cupy_turbo.api.loading import LoadedModel, load_model
from cupy_turbo.core.queue import Queue
from cupy_turbo.core.stream import Event, Stream
from cupy_turbo.engine.batch import BatchData
from cupy_turbo.engine.engine import Engine
from cupy_turbo.engine.request import Request, RequestEvent

READ_BYTES_PER_MS = 4.54e9
"""Read-only stream of an H200."""
FLOPS_PER_MS = 790e9
"""Bfloat16 matrix rate of an H200."""


class Recorder:
    """Keeps the device times of every batch, in milliseconds since its creation."""

    def __init__(self, loaded: LoadedModel) -> None:
        stream = Stream.create(device=loaded.device)
        self._origin = Event.create(True, device=loaded.device)
        self._origin.record(stream)
        stream.sync()
        self.steps: list[dict[str, float]] = []

    def __call__(self, batch: BatchData) -> None:
        marks = {name: getattr(batch, name) for name in ("upload_start", "ready", "compute_start", "done", "fetched")}
        times = {name: event.elapsed_since(self._origin) for name, event in marks.items()}
        self.steps.append({"rows": batch.num_decode_rows, "tokens": batch.num_tokens, "graph": batch.bucket, **times})

    def decode_steps(self, rows: int) -> list[dict[str, float]]:
        return [step for step in self.steps if step["graph"] and step["rows"] >= rows]


def load(model: str, device: str, seqs: int, length: int, tokens: int) -> LoadedModel:
    return load_model(
        model,
        device=device,
        dtype="auto",
        max_model_len=length,
        max_num_seqs=seqs,
        max_num_batched_tokens=tokens,
        block_size=64,
        gpu_memory_utilization=0.9,
        phases=2,
        revision=None,
        progress=True,
    )


def run(engine: Engine, vocab: int, count: int, prompt_len: int, max_tokens: int) -> None:
    """Run `count` random prompts to their end, greedily."""
    rng, events = np.random.default_rng(0), Queue[RequestEvent]()
    for index in range(count):
        request = Request(
            request_id=str(index),
            prompt_ids=rng.integers(0, vocab, prompt_len).astype(np.int32),
            stop_position=prompt_len + max_tokens,
            stop_ids=(),
            temperature=0.0,
            top_k=0,
            top_p=1.0,
            min_p=0.0,
            seed=0,
            events=events,
        )
        engine.submit(request)
    left = count
    while left:
        event = events.pop()
        if event.error is not None:
            raise event.error
        left -= event.finish_reason is not None


def overlap(loaded: LoadedModel) -> None:
    recorder = Recorder(loaded)
    allocations: list[tuple[int, int]] = []

    def observe(batch: BatchData) -> None:
        recorder(batch)
        count = loaded.device.statistics()
        allocations.append((count.device_allocations, count.pinned_allocations))

    engine = Engine(loaded.language_model, loaded.device, loaded.engine_config, observe=observe)
    engine.start()
    run(engine, loaded.config.vocab_size, 8, 16, 70)
    engine.close()
    steps, counts = recorder.steps[-51:], allocations[-51:]
    print(f"{'step':>4} {'H2D from':>10} {'to':>10} {'compute from':>13} {'to':>10}  H2D inside compute of step-1 (ms)")
    inside = 0
    for number, (before, step) in enumerate(itertools.pairwise(steps)):
        overlaps = before["compute_start"] <= step["upload_start"] and step["ready"] <= before["done"]
        inside += overlaps
        print(
            f"{number:4} {step['upload_start']:10.3f} {step['ready']:10.3f} {step['compute_start']:13.3f} "
            f"{step['done']:10.3f}  {'yes' if overlaps else 'no'}"
        )
    print(f"{inside} of {len(steps) - 1} copies lie inside the computation of the step before")
    print(f"allocations over these steps: device {counts[-1][0] - counts[0][0]}, pinned {counts[-1][1] - counts[0][1]}")


def speed(loaded: LoadedModel, batches: list[int]) -> None:
    config, recorder = loaded.config, Recorder(loaded)
    layer = config.hidden_size * (
        (2 * config.num_heads + 2 * config.num_kv_heads) * config.head_dim + 3 * config.intermediate_size
    )
    weights = config.num_layers * layer + config.hidden_size * config.vocab_size
    kv_token = 2 * config.num_layers * config.num_kv_heads * config.head_dim * loaded.dtype.itemsize
    engine = Engine(loaded.language_model, loaded.device, loaded.engine_config, observe=recorder)
    engine.start()

    def measured(action: Callable[[], None]) -> float:
        started = time.perf_counter()
        action()
        return 1e3 * (time.perf_counter() - started)

    for batch in batches:
        recorder.steps.clear()
        wall = measured(lambda count=batch: run(engine, config.vocab_size, count, 1000, 60))  # type: ignore[misc]
        steps = recorder.decode_steps(batch)[8:]
        gaps = [after["done"] - before["done"] for before, after in itertools.pairwise(steps)]
        floor = (weights * loaded.dtype.itemsize + batch * 1030 * kv_token) / READ_BYTES_PER_MS
        step_ms = statistics.median(gaps)
        busy = statistics.median(step["done"] - step["compute_start"] for step in steps)
        print(
            f"decode batch {batch:4}: {step_ms:8.3f} ms a step (graph alone {busy:.3f}), floor {floor:.3f} "
            f"({100 * floor / step_ms:.0f} %), {batch / step_ms * 1e3:,.0f} tokens/s, {len(gaps)} steps, "
            f"wall {wall:.0f} ms"
        )
    prompts = [2048]
    for length in prompts:
        for _ in range(3):
            recorder.steps.clear()
            run(engine, config.vocab_size, 1, length, 2)
        step = max(recorder.steps, key=lambda each: each["tokens"])
        prefill_ms = step["done"] - step["compute_start"]
        attention = 2 * config.num_layers * config.num_heads * config.head_dim * length * length
        floor = (2 * length * config.num_layers * layer + attention) / FLOPS_PER_MS
        print(f"prefill {length} tokens: {prefill_ms:.2f} ms, floor {floor:.2f} ({100 * floor / prefill_ms:.0f} %)")
    engine.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("report", choices=("overlap", "speed"))
    parser.add_argument("--model")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 64])
    arguments = parser.parse_args()
    if arguments.report == "overlap":
        loaded = load(arguments.model or "demo", arguments.device, 8, 256, 256)
        overlap(loaded)
    else:
        loaded = load(arguments.model or "random:llama-3.1-8b", arguments.device, max(arguments.batches), 4096, 8192)
        speed(loaded, arguments.batches)
    loaded.close()


if __name__ == "__main__":
    main()
