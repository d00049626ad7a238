"""Run many requests with cancels and faults through one engine, and account for every one of them.

    python tools/soak.py [--device host] [--requests 10000] [--seed 0]

Requests are drawn from a pool whose answers a quiet run has told before: lengths, stops, greedy and seeded sampling
mixed. One in ten is cancelled at a random moment, and a step fails now and then, which ends about one request in a
hundred. Exits with 1 if a request is lost or answered twice, if an undisturbed answer differs from the quiet run's, or
if threads, KV blocks, device or pinned memory or the process's own memory are left or grow after warm-up.
"""

from __future__ import annotations

import argparse
import random
import resource
import sys
import threading
import time
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

import numpy as np
from tqdm import tqdm

from cupy_turbo.api.loading import LoadedModel, load_model
from cupy_turbo.core.queue import Queue
from cupy_turbo.engine.engine import Engine
from cupy_turbo.engine.request import Request, RequestEvent
from cupy_turbo.models.language_model import LanguageModel
from cupy_turbo.models.step import Step

POOL = 64
CANCELLED = 0.1
FAULTY_STEPS = 0.002
GROWTH_BYTES = 48 << 20
"""Resident memory that a run may gain after warm-up: allocators and Python's own caches breathe."""


class InjectedFault(RuntimeError):
    """What a step is made to fail with."""


class FaultyModel:
    """A language model whose steps fail now and then."""

    def __init__(self, model: LanguageModel, probability: float, seed: int) -> None:
        self._model, self._probability, self._random = model, probability, random.Random(seed)
        self.faults = 0

    def prepare(self, step: Step) -> None:
        """Fail before anything is queued, or go on."""
        if self._random.random() < self._probability:
            self.faults += 1
            raise InjectedFault(f"injected fault {self.faults}")
        self._model.prepare(step)

    def forward(self, step: Step) -> None:
        """Go on."""
        self._model.forward(step)

    def unprepare(self, step: Step) -> None:
        """Go on."""
        self._model.unprepare(step)


@dataclass
class Account:
    """What is known of one request."""

    number: int
    kind: int
    cancel_after: int | None
    tokens: list[int] = field(default_factory=list)
    events: int = 0
    end: str | None = None


def make_request(kind: int, number: int, vocab: int, events: Queue[RequestEvent]) -> Request:
    """Build request `number` of a kind; all requests of a kind have the same answer."""
    draw = random.Random(kind)
    prompt = [draw.randrange(vocab) for _ in range(draw.randint(1, 40))]
    return Request(
        request_id=str(number),
        prompt_ids=np.array(prompt, np.int32),
        stop_position=len(prompt) + draw.randint(1, 16),
        stop_ids=tuple(draw.randrange(vocab) for _ in range(draw.choice([0, 0, 20]))),
        temperature=draw.choice([0.0, 0.8]),
        top_k=draw.choice([0, 20]),
        top_p=draw.choice([1.0, 0.9]),
        min_p=0.0,
        seed=kind,
        events=events,
    )


def quiet_answers(loaded: LoadedModel) -> list[list[int]]:
    """Tell the answer of every kind, one request at a time, without faults."""
    engine = Engine(loaded.language_model, loaded.device, loaded.engine_config)
    engine.start()
    answers: list[list[int]] = []
    for kind in range(POOL):
        events: Queue[RequestEvent] = Queue()
        engine.submit(make_request(kind, kind, loaded.config.vocab_size, events))
        tokens: list[int] = []
        for event in events:
            tokens += event.token_ids
            if event.finish_reason:
                break
        answers.append(tokens)
    engine.close()
    return answers


def resident_bytes() -> int:
    """Memory of this process that is in RAM now."""
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()


def soak(loaded: LoadedModel, count: int, seed: int, answers: list[list[int]]) -> list[str]:
    """Run the load; return what was found wrong."""
    draw, wrong = random.Random(seed), list[str]()
    model = FaultyModel(loaded.language_model, FAULTY_STEPS, seed)
    engine = Engine(model, loaded.device, loaded.engine_config)
    engine.start()
    events: Queue[RequestEvent] = Queue()
    accounts: dict[str, Account] = {}
    window, submitted, ended = 4 * loaded.engine_config.max_num_seqs, 0, 0
    warm: tuple[int, object] | None = None
    with tqdm(total=count, unit="request", disable=None) as bar:
        while ended < count:
            while submitted < count and submitted - ended < window:
                kind = draw.randrange(POOL)
                cancel = draw.randint(0, 6) if draw.random() < CANCELLED else None
                request = make_request(kind, submitted, loaded.config.vocab_size, events)
                accounts[request.request_id] = Account(submitted, kind, cancel)
                engine.submit(request)
                if cancel == 0:
                    request.cancel()
                submitted += 1
            event = events.pop(timeout=120)
            account = accounts[event.request.request_id]
            if account.end is not None:
                wrong.append(f"request {account.number} had an event after its end, {account.end}")
            account.tokens += event.token_ids
            account.events += 1
            if event.finish_reason is not None:
                account.end = event.finish_reason
                ended += 1
                bar.update()
            elif account.events == account.cancel_after:
                event.request.cancel()
            if warm is None and ended >= count // 4:
                warm = resident_bytes(), loaded.device.statistics()
    engine.close()
    grown = resident_bytes() - (warm[0] if warm else 0)
    if grown > GROWTH_BYTES:
        wrong.append(f"resident memory grew by {grown:,} bytes after warm-up")
    if warm and loaded.device.statistics() != warm[1]:
        wrong.append(f"device or pinned memory was taken after warm-up: {warm[1]} -> {loaded.device.statistics()}")
    engine.check_integrity()
    if len(events):
        wrong.append(f"{len(events)} events came after every request had ended")
    every = list(accounts.values())
    wrong += judge(every, answers, model.faults)
    report(every, model.faults, grown)
    return wrong


def judge(accounts: Collection[Account], answers: list[list[int]], faults: int) -> list[str]:
    """Compare every account with the quiet run."""
    wrong = []
    for account in accounts:
        expected = answers[account.kind]
        if account.tokens != expected[: len(account.tokens)]:
            wrong.append(f"request {account.number} has other tokens than in the quiet run")
        elif account.end in ("stop", "length") and account.tokens != expected:
            wrong.append(f"request {account.number} ended as {account.end} after {len(account.tokens)} tokens")
        elif account.end == "abort" and account.cancel_after is None:
            wrong.append(f"request {account.number} was aborted by nobody")
        elif account.end == "error" and not faults:
            wrong.append(f"request {account.number} failed without a fault")
    return wrong


def report(accounts: Collection[Account], faults: int, grown: int) -> None:
    """Print the balance."""
    ends = Counter(account.end for account in accounts)
    tokens = sum(len(account.tokens) for account in accounts)
    print(f"ends: {dict(ends)}; {tokens:,} tokens; {faults} failed steps; resident memory {grown / 2**20:+.1f} MiB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="host")
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    loaded = load_model(
        "demo",
        device=arguments.device,
        dtype="float32",
        max_model_len=64,
        max_num_seqs=64,
        max_num_batched_tokens=256,
        block_size=16,
        gpu_memory_utilization=0.9,
        phases=2,
        revision=None,
        progress=False,
    )
    answers, before = quiet_answers(loaded), threading.active_count()
    started = time.perf_counter()
    wrong = soak(loaded, arguments.requests, arguments.seed, answers)
    if threading.active_count() > before:
        wrong.append(f"threads are left: {[thread.name for thread in threading.enumerate()]}")
    loaded.close()
    print(f"{arguments.requests:,} requests in {time.perf_counter() - started:.1f} s on {arguments.device}")
    for line in wrong[:20]:
        print("WRONG:", line)
    print("nothing lost, doubled, leaked or changed" if not wrong else f"{len(wrong)} findings")
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
