"""Every accepted request ends exactly once: finished, cancelled, failed or shut down."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading

import numpy as np
import pytest

from cupy_turbo import LLM, SamplingParams
from cupy_turbo.api.loading import load_model
from cupy_turbo.core.errors import DeviceLostError, EngineDeadError
from cupy_turbo.core.queue import Queue
from cupy_turbo.core.stream import Stream
from cupy_turbo.engine.engine import Engine
from cupy_turbo.engine.request import Request, RequestEvent
from cupy_turbo.models.step import Step

LONG = SamplingParams(temperature=0, ignore_eos=True)


def engine_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("cupy_turbo-e")]


@pytest.fixture
def llm(device_kind):
    with LLM("demo", device=device_kind, max_model_len=128, max_num_seqs=4, block_size=16) as llm:
        yield llm
    assert not engine_threads()


class Faulty:
    """A model that raises `error` in its n-th forward."""

    def __init__(self, model, at: int, error: Exception) -> None:
        self._model, self._at, self._error, self.steps = model, at, error, 0

    def prepare(self, step: Step) -> None:
        self._model.prepare(step)

    def forward(self, step: Step) -> None:
        self.steps += 1
        if self.steps == self._at:
            raise self._error
        self._model.forward(step)

    def unprepare(self, step: Step) -> None:
        self._model.unprepare(step)


def request(index: int, events: Queue[RequestEvent], max_tokens: int = 20) -> Request:
    return Request(
        request_id=str(index),
        prompt_ids=np.array([1, 2, 3 + index], np.int32),
        stop_position=3 + max_tokens,
        stop_ids=(),
        temperature=0.0,
        top_k=0,
        top_p=1.0,
        min_p=0.0,
        seed=0,
        events=events,
    )


def ends(events: Queue[RequestEvent], count: int) -> dict[str, RequestEvent]:
    """Pop until `count` requests have ended; a second end of one request is an error."""
    ended: dict[str, RequestEvent] = {}
    while len(ended) < count:
        event = events.pop(timeout=60)
        assert event.request.request_id not in ended
        if event.finish_reason is not None:
            ended[event.request.request_id] = event
    assert len(events) == 0
    return ended


@pytest.fixture
def loaded(device_kind):
    loaded = load_model(
        "demo",
        device=device_kind,
        dtype="float32",
        max_model_len=128,
        max_num_seqs=4,
        max_num_batched_tokens=64,
        block_size=16,
        gpu_memory_utilization=0.9,
        phases=2,
        revision=None,
        progress=False,
    )
    yield loaded
    loaded.close()


@pytest.mark.parametrize("at", [1, 2, 3])
def test_a_failing_step_ends_its_requests_and_the_engine_goes_on(loaded, at):
    engine = Engine(Faulty(loaded.language_model, at, RuntimeError("boom")), loaded.device, loaded.engine_config)
    engine.start()
    events: Queue[RequestEvent] = Queue()
    for index in range(4):
        engine.submit(request(index, events))
    ended = ends(events, 4)
    failed = [event for event in ended.values() if event.finish_reason == "error"]
    assert failed
    assert all("boom" in str(event.error) for event in failed)
    engine.submit(request(9, events))
    assert ends(events, 1)["9"].finish_reason == "length"
    engine.close()
    engine.check_integrity()


def test_a_lost_device_ends_everything_and_later_calls_say_so(loaded):
    engine = Engine(Faulty(loaded.language_model, 3, DeviceLostError("gone")), loaded.device, loaded.engine_config)
    engine.start()
    events: Queue[RequestEvent] = Queue()
    for index in range(8):  # twice the slots: some run, some wait
        engine.submit(request(index, events, max_tokens=100))
    ended = ends(events, 8)
    assert {event.finish_reason for event in ended.values()} == {"error"}
    assert any(isinstance(event.error, EngineDeadError) for event in ended.values())
    engine.close()
    with pytest.raises(EngineDeadError, match="gone"):
        engine.submit(request(9, events))


def test_closing_aborts_running_and_waiting_requests(loaded):
    engine = Engine(loaded.language_model, loaded.device, loaded.engine_config)
    engine.start()
    events: Queue[RequestEvent] = Queue()
    for index in range(9):
        engine.submit(request(index, events, max_tokens=120))
    events.pop(timeout=60)
    engine.close()
    engine.close()
    ended = ends(events, 9)
    assert {event.finish_reason for event in ended.values()} <= {"abort", "length"}
    assert "abort" in {event.finish_reason for event in ended.values()}
    engine.check_integrity()
    with pytest.raises(EngineDeadError, match="closed"):
        engine.submit(request(10, events))


def test_leaving_a_stream_cancels_its_request(llm):
    for _ in range(20):
        stream = llm.stream("ROMEO:", LONG)
        next(stream)
        stream.close()
    (output,) = llm.generate("ROMEO:", SamplingParams(temperature=0, max_tokens=3))
    assert len(output.outputs[0].token_ids) == 3
    llm.close()
    llm.engine.check_integrity()


def test_cancel_while_waiting_and_after_the_end(llm):
    events: Queue[RequestEvent] = Queue()
    requests = [request(index, events, max_tokens=100) for index in range(6)]
    for each in requests:
        llm.engine.submit(each)
    requests[5].cancel()  # waits: four slots are taken
    assert ends(events, 6)["5"].finish_reason == "abort"
    requests[0].cancel()
    llm.close()
    assert len(events) == 0


def test_an_interrupted_generate_leaves_nothing_behind(llm, monkeypatch):
    """Ctrl-C in `generate` cancels its requests; the next call works."""
    real_pop, calls = Queue.pop, []

    def pop(self, **options):
        if threading.current_thread() is threading.main_thread():
            calls.append(1)
            if len(calls) == 3:
                raise KeyboardInterrupt
        return real_pop(self, **options)

    monkeypatch.setattr(Queue, "pop", pop)
    with pytest.raises(KeyboardInterrupt):
        llm.generate(["a", "b", "c", "d", "e"], LONG)
    monkeypatch.undo()
    (output,) = llm.generate("ROMEO:", SamplingParams(temperature=0, max_tokens=2))
    assert len(output.outputs[0].token_ids) == 2
    llm.close()
    llm.engine.check_integrity()


def test_dropping_a_model_without_close_ends_its_threads(device_kind):
    llm = LLM("demo", device=device_kind, max_model_len=64, max_num_seqs=2)
    llm.generate("x", SamplingParams(max_tokens=2))
    del llm
    gc.collect()
    assert not engine_threads()


def test_a_script_that_never_closes_exits_cleanly(device_kind):
    script = f"from cupy_turbo import LLM; llm = LLM('demo', device={device_kind!r}, max_num_seqs=2); llm.stream('x')"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_non_finite_logits_fail_the_request_by_name(loaded):
    """Weights turned to NaN on the device: the request ends with the cause, not as a row of exclamation marks."""
    network = loaded.language_model.network
    device = loaded.device
    with device:
        stream = Stream.create()
        device.fill(network.weights.norm, 0xFF, stream=stream)
        stream.sync()
    engine = Engine(loaded.language_model, device, loaded.engine_config)
    engine.start()
    events: Queue[RequestEvent] = Queue()
    engine.submit(request(0, events))
    end = ends(events, 1)["0"]
    assert end.finish_reason == "error"
    assert "not finite" in str(end.error)
    engine.close()
    engine.check_integrity()
