"""Thousands of requests through one engine, with cancels, stops and faults: nothing lost, nothing left, nothing wrong.

    python tools/soak.py --device host --requests 10000
    python tools/soak.py --device cuda --requests 50000

Exits with 1 and says what was violated. Every request is one of a pool of distinct ones whose answers a quiet run has
given before; whoever was not disturbed must get exactly that answer, the others a part of it.
"""

from __future__ import annotations

import argparse
import gc
import logging
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from cupy_turbo.api.loading import LoadedModel, load_model
from cupy_turbo.core.queue import Queue
from cupy_turbo.engine.batch import BatchData
from cupy_turbo.engine.engine import Engine
from cupy_turbo.engine.request import Request, RequestEvent
from cupy_turbo.models.step import Step
from cupy_turbo.testing.faults import Fault, inject

POOL = 400
WINDOW = 160
"""Requests alive at once: with 64 slots, most of the time some wait."""
MB = 1 << 20


@dataclass(frozen=True)
class Kind:
    """One of the distinct requests."""

    prompt: tuple[int, ...]
    max_tokens: int
    temperature: float
    seed: int
    stop_ids: tuple[int, ...]


@dataclass
class Sent:
    """A request under way."""

    kind: Kind
    request: Request
    cancel_at: int | None
    tokens: list[int] = field(default_factory=list)
    is_cancelled: bool = False


@dataclass
class Tally:
    """What happened, and what must not."""

    ends: Counter[str] = field(default_factory=Counter)
    violations: Counter[str] = field(default_factory=Counter)
    tokens: int = 0
    exact: int = 0


class Stumbling:
    """The model, which raises in one of `every` steps and notes who was in it."""

    def __init__(self, loaded: LoadedModel, every: int, rng: random.Random) -> None:
        self._model, self._every, self._rng = loaded.language_model, every, rng
        self.is_on, self.failures = False, 0

    def prepare(self, step: Step) -> None:
        self._model.prepare(step)

    def forward(self, step: Step) -> None:
        if self.is_on and isinstance(step, BatchData) and self._rng.random() < 1 / self._every:
            self.failures += 1
            raise RuntimeError("the soak lets this step fail")
        self._model.forward(step)

    def unprepare(self, step: Step) -> None:
        self._model.unprepare(step)


def kinds(rng: random.Random, vocab: int) -> list[Kind]:
    """Prompts of 1 to 60 tokens, answers of 1 to 12; some sampled, some that may stop early."""
    return [
        Kind(
            prompt=tuple(rng.randrange(vocab) for _ in range(min(60, 1 + int(rng.expovariate(1 / 8))))),
            max_tokens=rng.randint(1, 12),
            temperature=rng.choice([0.0, 0.0, 0.9]),
            seed=rng.getrandbits(64),
            stop_ids=tuple(rng.randrange(vocab) for _ in range(rng.choice([0, 0, 16, 32]))),
        )
        for _ in range(POOL)
    ]


def make(name: str, kind: Kind, events: Queue[RequestEvent]) -> Request:
    return Request(
        request_id=name,
        prompt_ids=np.array(kind.prompt, np.int32),
        stop_position=len(kind.prompt) + kind.max_tokens,
        stop_ids=kind.stop_ids,
        temperature=kind.temperature,
        top_k=0,
        top_p=1.0,
        min_p=0.0,
        seed=kind.seed,
        events=events,
    )


def quiet_answers(engine: Engine, pool: list[Kind]) -> dict[Kind, tuple[tuple[int, ...], str]]:
    """Run the whole pool once, undisturbed."""
    events: Queue[RequestEvent] = Queue()
    tokens: dict[Request, list[int]] = {}
    answers: dict[Kind, tuple[tuple[int, ...], str]] = {}
    kind_of: dict[Request, Kind] = {}
    for index, kind in enumerate(pool):
        request = make(f"quiet-{index}", kind, events)
        kind_of[request], tokens[request] = kind, []
        engine.submit(request)
    while len(answers) < len(pool):
        event = events.pop(timeout=120)
        tokens[event.request].extend(event.token_ids)
        if event.finish_reason is not None:
            answers[kind_of[event.request]] = tuple(tokens[event.request]), event.finish_reason
    return answers


@dataclass(frozen=True)
class Usage:
    """What the process holds at a moment when nothing runs."""

    threads: int
    rss: int
    device_bytes: int
    pinned_bytes: int
    objects: int

    def __str__(self) -> str:
        return (
            f"{self.threads} threads, RSS {self.rss / MB:.1f} MB, {self.device_bytes:,} device and "
            f"{self.pinned_bytes:,} pinned bytes taken, {self.objects:,} objects"
        )


def own_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("cupy_turbo")]


def usage(loaded: LoadedModel) -> Usage:
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    counts = loaded.device.statistics()
    return Usage(
        threading.active_count(), pages * 4096, counts.device_bytes, counts.pinned_bytes, len(gc.get_objects())
    )


class Soak:
    """The consumer: keeps a window of requests alive and checks each event."""

    def __init__(self, engine: Engine, pool: list[Kind], quiet: dict[Kind, tuple[tuple[int, ...], str]], seed: int):
        self.engine, self.pool, self.quiet = engine, pool, quiet
        self.rng, self.tally = random.Random(seed), Tally()
        self.events: Queue[RequestEvent] = Queue()
        self.alive: dict[str, Sent] = {}
        self.sent = 0

    def run(self, count: int) -> None:
        """Send `count` requests and see each to its end."""
        last = self.sent + count
        while self.sent < last or self.alive:
            while self.sent < last and len(self.alive) < WINDOW:
                self._send()
            self._take(self.events.pop(timeout=120))

    def _send(self) -> None:
        kind = self.rng.choice(self.pool)
        request = make(str(self.sent), kind, self.events)
        cancel_at = self.rng.choice([0, 1, 3, 6]) if self.rng.random() < 0.1 else None
        sent = self.alive[request.request_id] = Sent(kind, request, cancel_at)
        self.sent += 1
        self.engine.submit(request)
        self._maybe_cancel(sent)

    def _maybe_cancel(self, sent: Sent) -> None:
        if sent.cancel_at is not None and len(sent.tokens) >= sent.cancel_at and not sent.is_cancelled:
            sent.is_cancelled = True
            sent.request.cancel()

    def _take(self, event: RequestEvent) -> None:
        sent = self.alive.get(event.request.request_id)
        if sent is None:
            self.tally.violations["an event behind the end"] += 1
            return
        sent.tokens.extend(event.token_ids)
        self.tally.tokens += len(event.token_ids)
        if event.finish_reason is None:
            self._maybe_cancel(sent)
            return
        del self.alive[event.request.request_id]
        self._judge(sent, event)

    def _judge(self, sent: Sent, event: RequestEvent) -> None:
        tokens, reason = self.quiet[sent.kind]
        self.tally.ends[str(event.finish_reason)] += 1
        if tuple(sent.tokens) != tokens[: len(sent.tokens)]:
            self.tally.violations["wrong tokens"] += 1
        elif event.finish_reason in ("stop", "length"):
            exact = event.finish_reason == reason and len(sent.tokens) == len(tokens)
            self.tally.exact += exact
            self.tally.violations["ended early or late"] += not exact
        elif event.finish_reason == "abort":
            self.tally.violations["aborted without a cancel"] += not sent.is_cancelled


@contextmanager
def soak_engine(loaded: LoadedModel, model: Stumbling) -> Iterator[Engine]:
    engine = Engine(model, loaded.device, loaded.engine_config)
    engine.start()
    try:
        yield engine
    finally:
        engine.close()


def compare(before: Usage, after: Usage, slack_mb: float) -> list[str]:
    found = []
    for name in ("threads", "device_bytes", "pinned_bytes"):
        if getattr(after, name) != getattr(before, name):
            found.append(f"{name} went from {getattr(before, name):,} to {getattr(after, name):,}")
    if after.rss - before.rss > slack_mb * MB:
        found.append(f"RSS grew by {(after.rss - before.rss) / MB:.1f} MB, more than {slack_mb}")
    if after.objects > before.objects * 1.05 + 2000:  # graphs and forms of launches are kept as they come up
        found.append(f"Python objects went from {before.objects:,} to {after.objects:,}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="host")
    parser.add_argument("--model", default="demo")
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--fail-every", type=int, default=300, help="one step in this many fails (default 300)")
    parser.add_argument("--slack-mb", type=float, default=16.0, help="RSS may grow by this much after warm-up")
    arguments = parser.parse_args()
    logging.getLogger("cupy_turbo").setLevel(logging.CRITICAL)  # failing steps are meant here

    started = time.perf_counter()
    loaded = load_model(
        arguments.model, device=arguments.device, dtype="float32", max_model_len=80, max_num_seqs=64,
        max_num_batched_tokens=256, block_size=16, gpu_memory_utilization=0.5, phases=2, revision=None, progress=False,
    )  # fmt: skip
    rng = random.Random(arguments.seed)
    pool = kinds(rng, loaded.tokenizer.vocab_size)
    model = Stumbling(loaded, arguments.fail_every, rng)
    problems: list[str] = []
    with soak_engine(loaded, model) as engine:
        soak = Soak(engine, pool, quiet_answers(engine, pool), arguments.seed)
        model.is_on = True
        soak.run(max(arguments.requests // 5, 1))
        warm = usage(loaded)
        print(f"after {soak.sent:,} requests: {warm}", flush=True)
        soak.run(arguments.requests - soak.sent)
        end = usage(loaded)
        print(f"after {soak.sent:,} requests: {end}")
        problems += compare(warm, end, arguments.slack_mb)
        # A device call fails now and then too, in the ways that CUDA reports at once.
        for where in ("copy", "record", "wait", "sync", "kernel"):
            with inject(loaded.device, Fault(where=where, call=40)):  # type: ignore[arg-type]
                soak.run(100)
    seconds, tally = time.perf_counter() - started, soak.tally
    engine.check_integrity()
    loaded.close()
    if own_threads():
        problems.append(f"threads left: {own_threads()}")
    if sum(tally.ends.values()) != soak.sent:
        problems.append(f"{soak.sent} requests, {sum(tally.ends.values())} ends")
    problems += [f"{what}: {count}" for what, count in tally.violations.items() if count]
    print(
        f"{soak.sent:,} requests, {tally.tokens:,} tokens in {seconds:.0f} s; ends: "
        f"{', '.join(f'{count:,} {reason}' for reason, count in sorted(tally.ends.items()))}; "
        f"{tally.exact:,} answers equal to the quiet run's; {model.failures} steps were made to fail"
    )
    print("\n".join(f"VIOLATED: {problem}" for problem in problems) or "nothing lost, doubled, leaked or wrong")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
