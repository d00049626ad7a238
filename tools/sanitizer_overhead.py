"""What the stream sanitizer costs: one operation, and a generate run of the demo model, with it off and on.

    python tools/sanitizer_overhead.py [--device host|cuda] [--tokens 200] [--rounds 5]

"off" is measured twice, before and after "on": the difference between the two is the noise.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext

import numpy as np

from cupy_turbo import LLM, Event, SamplingParams, Stream, open_device, sanitize

MODES = ("off", "on", "off again")


def median_time(call: Callable[[], object], rounds: int) -> float:
    """Median seconds of a call, the first not counted."""
    times = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def time_operations(kind: str, rounds: int) -> dict[str, dict[str, float]]:
    """Microseconds of the host to queue one operation, by operation and mode."""
    device = open_device(kind)
    stream, other, event = Stream.create(device=device), Stream.create(device=device), Event.create(device=device)
    x, y, weight = (device.upload(np.ones(256, np.float32)) for _ in range(3))
    pinned, kernel = device.pinned(256, np.dtype(np.float32)), device.kernel("rms_norm", TYPE="float")

    def record_and_wait() -> None:
        event.record(stream)
        other.wait(event)

    operations: dict[str, Callable[[], None]] = {
        "kernel with 3 arrays": lambda: kernel(1, 32, [y, x, weight, 256, 1e-6], stream=stream),
        "copy of 1 KiB to the device": lambda: device.copy(x, pinned, stream=stream),
        "fill": lambda: device.fill(x, 0, stream=stream),
        "record and wait": record_and_wait,
    }
    found: dict[str, dict[str, float]] = {name: {} for name in operations}
    for mode in MODES:
        with sanitize() if mode == "on" else nullcontext():
            for name, operation in operations.items():

                def queue_many(operation: Callable[[], None] = operation) -> float:
                    start = time.perf_counter()
                    for _ in range(200):
                        operation()
                    seconds = time.perf_counter() - start
                    device.synchronize()
                    return seconds

                times = [queue_many() for _ in range(rounds + 1)]
                found[name][mode] = statistics.median(times[1:]) / 200 * 1e6
    device.close()
    return found


def time_generation(kind: str, num_tokens: int, rounds: int) -> dict[str, float]:
    """Tokens per second of four requests at once, by mode."""
    greedy = SamplingParams(temperature=0, max_tokens=num_tokens, ignore_eos=True)
    found = {}
    with LLM("demo", device=kind, dtype="float32", max_num_seqs=4) as llm:
        for mode in MODES:
            with sanitize() if mode == "on" else nullcontext():
                seconds = median_time(lambda: llm.generate(["ROMEO:"] * 4, greedy), rounds)
            found[mode] = 4 * num_tokens / seconds
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--device", default="host", choices=("host", "cuda"))
    parser.add_argument("--tokens", type=int, default=200, help="of each answer (default %(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="medians of so many (default %(default)s)")
    options = parser.parse_args()
    print(f"{'':<36}{''.join(f'{mode:>12}' for mode in MODES)}{'on / off':>12}")
    for name, times in time_operations(options.device, options.rounds).items():
        row = "".join(f"{times[mode]:>12.2f}" for mode in MODES)
        print(f"{name + ', µs':<36}{row}{times['on'] / times['off']:>12.2f}")
    speeds = time_generation(options.device, options.tokens, options.rounds)
    row = "".join(f"{speeds[mode]:>12.0f}" for mode in MODES)
    print(f"{'demo model, tokens/s':<36}{row}{speeds['off'] / speeds['on']:>12.2f}")


if __name__ == "__main__":
    main()
