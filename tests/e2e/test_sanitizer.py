"""A generate run is free of races, and without one of its waits it is not: the sanitizer names the wait."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from cupy_turbo import LLM, Event, SamplingParams, Stream, sanitize
from cupy_turbo.core.errors import CupyTurboError, StreamRaceError
from cupy_turbo.device.sanitize import unsanitized
from cupy_turbo.engine.batch import BatchData

OPTIONS = {"dtype": "float32", "max_num_seqs": 4, "max_model_len": 64, "max_num_batched_tokens": 32, "block_size": 16}
PROMPTS = ["ROMEO:", "JULIET: O", "First Citizen:\nBefore we", "A", "KING"]
PARAMS = [SamplingParams(temperature=0.8 * (i % 2), seed=i, max_tokens=6 + 3 * i, ignore_eos=True) for i in range(5)]


@pytest.mark.parametrize("phases", [1, 2])
def test_generate_is_free_of_races(device_kind: str, phases: int) -> None:
    """More requests than slots, prompts and decode steps in one batch, launches and graphs."""
    with unsanitized(), sanitize() as sanitizer:
        with LLM("demo", device=device_kind, phases=phases, **OPTIONS) as llm:
            outputs = llm.generate(PROMPTS, PARAMS)
            assert llm.engine._executor._loop.model.num_graphs > 0
        assert [output.outputs[0].finish_reason for output in outputs] == ["length"] * 5
        assert sanitizer.findings == []
        assert sanitizer.num_operations > 1000
        del llm


def race_of(llm: LLM) -> StreamRaceError:
    """Ask for an answer, and return the race that the request fails of."""
    with pytest.raises(CupyTurboError) as caught:
        list(llm.stream("ROMEO:", PARAMS[0]))
    error: BaseException | None = caught.value
    while not isinstance(error, StreamRaceError):
        assert error is not None, caught.value
        error = error.__cause__
    return error


def wait_unless(dropped: Callable[[Event], bool]) -> Callable[[Stream, Event], None]:
    """`Stream.wait`, which leaves out the waits for some events."""
    wait = Stream.wait

    def wait_or_not(stream: Stream, event: Event) -> None:
        if not dropped(event):
            wait(stream, event)

    return wait_or_not


@pytest.mark.parametrize("phases", [1, 2])
@pytest.mark.parametrize(
    ("name", "earlier", "record"),
    [("ready", "copy", "batch.ready.record(self.upload)"), ("done", "commit_tokens", "batch.done.record(self.stream)")],
)
def test_a_wait_that_is_left_out_is_named(
    device_kind: str,
    phases: int,
    name: str,
    earlier: str,
    record: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The executor's two waits: for the inputs, and for the results."""
    batches: list[BatchData] = []
    make = BatchData.__init__

    def remember(batch: BatchData, *args: object, **options: object) -> None:
        make(batch, *args, **options)
        batches.append(batch)

    monkeypatch.setattr(BatchData, "__init__", remember)
    caplog.set_level(logging.CRITICAL, "cupy_turbo")  # the engine logs every step that fails
    with unsanitized(), sanitize(), LLM("demo", device=device_kind, phases=phases, **OPTIONS) as llm:
        monkeypatch.setattr(Stream, "wait", wait_unless(lambda event: any(event == getattr(b, name) for b in batches)))
        error = race_of(llm)
        monkeypatch.undo()
        assert error.earlier == earlier
        assert ".wait(Event(" in error.remedy and record in error.remedy
        assert "model_executor.py" in str(error)


def test_results_that_are_read_before_they_arrive_are_named(
    device_kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The engine's one host wait, `batch.fetched.sync()`, left out."""
    caplog.set_level(logging.CRITICAL, "cupy_turbo")
    with unsanitized(), sanitize():
        llm = LLM("demo", device=device_kind, **OPTIONS)
        with monkeypatch.context() as patch:
            patch.setattr(Event, "sync", lambda event: None)
            error = race_of(llm)
        assert (error.earlier, error.later) == ("copy", "host")
        assert "batch.fetched.record(self.download)" in error.remedy
        llm.close()
