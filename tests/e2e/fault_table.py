"""What the fault tests share: requests with known answers, and the table of faults and outcomes that `-s` shows."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np

from cupy_turbo.api.loading import LoadedModel, load_model
from cupy_turbo.core.queue import Queue
from cupy_turbo.engine.engine import Engine
from cupy_turbo.engine.request import Request, RequestEvent
from cupy_turbo.models.language_model import LanguageModel

COUNT = 6
"""Requests of a round: more than the four slots, so that two wait."""


@dataclass
class Table:
    """Rows of (fault, where, outcome)."""

    rows: list[tuple[str, str, str]] = field(default_factory=list)

    def add(self, fault: str, where: str, outcome: str) -> None:
        self.rows.append((fault, where, outcome))

    def __str__(self) -> str:
        rows = [("fault", "where", "outcome"), *self.rows]
        widths = [max(len(row[column]) for row in rows) for column in range(2)]
        return "\n".join(f"{fault:<{widths[0]}}  {where:<{widths[1]}}  {outcome}" for fault, where, outcome in rows)


@dataclass
class Answer:
    """All that came back for a request."""

    tokens: list[int] = field(default_factory=list)
    end: RequestEvent | None = None


def load(device_kind: str, **options: object) -> LoadedModel:
    settings: dict[str, object] = {
        "device": device_kind,
        "dtype": "float32",
        "max_model_len": 128,
        "max_num_seqs": 4,
        "max_num_batched_tokens": 32,
        "block_size": 16,
        "gpu_memory_utilization": 0.9,
        "phases": 2,
        "revision": None,
        "progress": False,
    }
    return load_model("demo", **{**settings, **options})  # type: ignore[arg-type]


@contextmanager
def running(loaded: LoadedModel, model: LanguageModel | None = None) -> Iterator[Engine]:
    """An engine that is closed whatever happens, and leaves no thread."""
    engine = Engine(model or loaded.language_model, loaded.device, loaded.engine_config)
    engine.start()
    try:
        yield engine
    finally:
        engine.close()
    assert not engine_threads()


def request(index: int, events: Queue[RequestEvent], max_tokens: int = 8) -> Request:
    prompt = np.array([(31 * index + 7 * j) % 1024 for j in range(3 + 9 * index)], np.int32)
    return Request(
        request_id=str(index),
        prompt_ids=prompt,
        stop_position=len(prompt) + max_tokens + index,
        stop_ids=(),
        temperature=0.8 if index in (0, 2) else 0.0,
        top_k=0,
        top_p=1.0,
        min_p=0.0,
        seed=index,
        events=events,
    )


def answers(engine: Engine, count: int = COUNT) -> dict[str, Answer]:
    """Run `count` requests to their ends; an event after an end fails."""
    events: Queue[RequestEvent] = Queue()
    got = {str(index): Answer() for index in range(count)}
    for index in range(count):
        engine.submit(request(index, events))
    return collect(events, got)


def collect(events: Queue[RequestEvent], got: dict[str, Answer]) -> dict[str, Answer]:
    while any(answer.end is None for answer in got.values()):
        event = events.pop(timeout=20)
        answer = got[event.request.request_id]
        assert answer.end is None, f"request {event.request.request_id}: an event after its end"
        answer.tokens.extend(event.token_ids)
        if event.finish_reason is not None:
            answer.end = event
    assert len(events) == 0
    return got


def check(got: dict[str, Answer], quiet: dict[str, Answer]) -> Counter[str]:
    """Whoever ended well has the tokens of a quiet run, the others a part of them; count the ends."""
    ends: Counter[str] = Counter()
    for name, answer in got.items():
        expected = quiet[name]
        assert answer.end is not None
        assert expected.end is not None
        reason = answer.end.finish_reason
        assert answer.tokens == expected.tokens[: len(answer.tokens)], f"request {name}: wrong tokens"
        if reason not in ("error", "abort"):
            assert (reason, len(answer.tokens)) == (expected.end.finish_reason, len(expected.tokens))
        assert (reason == "error") == (answer.end.error is not None)
        ends[str(reason)] += 1
    return ends


def told(ends: Counter[str]) -> str:
    return ", ".join(f"{count} {reason}" for reason, count in sorted(ends.items()))


def engine_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("cupy_turbo")]
