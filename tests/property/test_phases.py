"""Looking one batch ahead changes no token: real threads, random cancels and stops, one phase beside two."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cupy_turbo.core.protocols import Device
from cupy_turbo.core.queue import Queue
from cupy_turbo.engine.engine import Engine
from cupy_turbo.engine.request import RequestEvent
from cupy_turbo.testing.examples import examples
from tests.property.stepped_engine import Sent, toy_config, toy_request
from tests.property.toy_model import VOCAB_SIZE, ToyModel, open_toy_device

TOKENS = st.integers(0, VOCAB_SIZE - 1)


@dataclass(frozen=True)
class Asked:
    """A request; `cancel_at` cancels it as soon as that many tokens of it have come, 0 at once."""

    prompt: tuple[int, ...]
    max_tokens: int
    seed: int
    stop_ids: tuple[int, ...]
    cancel_at: int | None


ASKED = st.builds(
    Asked,
    st.lists(TOKENS, min_size=1, max_size=30).map(tuple),
    st.integers(1, 30),
    st.integers(0, 2**64 - 1),
    st.lists(TOKENS, max_size=3).map(tuple),
    st.none() | st.integers(0, 20),
)


@pytest.fixture(scope="module")
def toy_device(device_kind: str) -> Iterator[Device]:
    device = open_toy_device(device_kind)
    yield device
    device.close()


def run(device: Device, asked: list[Asked], phases: int) -> list[Sent]:
    """Run everything on an engine of its own, and check every end and every token."""
    config = toy_config(slots=4, tokens=20, blocks=12, phases=phases)
    engine = Engine(ToyModel(device, config.limits, config.num_blocks), device, config)
    engine.start()
    events: Queue[RequestEvent] = Queue()
    sent: dict[str, Sent] = {}
    for index, each in enumerate(asked):
        one = toy_request(str(index), list(each.prompt), each.max_tokens, each.seed, events, each.stop_ids)
        sent[str(index)] = one
        engine.submit(one.request)
        if each.cancel_at == 0:
            cancel(one)
    while not all(one.ends for one in sent.values()):
        event = events.pop(timeout=30)
        one = sent[event.request.request_id]
        one.take(event)
        if len(one.tokens) == asked[int(event.request.request_id)].cancel_at and not one.ends:
            cancel(one)
    engine.close()
    engine.check_integrity()
    assert len(events) == 0
    for one in sent.values():
        one.check()
    return list(sent.values())


def cancel(sent: Sent) -> None:
    sent.is_disturbed = True
    sent.request.cancel()


@settings(max_examples=examples(15), deadline=None)
@given(asked=st.lists(ASKED, min_size=1, max_size=10))
def test_one_phase_and_two_give_the_same(toy_device: Device, asked: list[Asked]) -> None:
    synchronous, lookahead = (run(toy_device, asked, phases) for phases in (1, 2))
    for one, two in zip(synchronous, lookahead, strict=True):
        if not one.is_disturbed:
            assert (one.tokens, one.ends[0].finish_reason) == (two.tokens, two.ends[0].finish_reason)
