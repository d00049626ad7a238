"""A fault at every step: each request ends once, nothing is left behind, and the next request gets the right tokens."""

from __future__ import annotations

import ctypes
import gc
import weakref
from collections.abc import Iterator

import pytest

from cupy_turbo import LLM
from cupy_turbo.api import loading
from cupy_turbo.api.loading import LoadedModel
from cupy_turbo.core.errors import DeviceError, DeviceLostError, EngineDeadError, KernelError, RequestFailedError
from cupy_turbo.core.queue import Queue
from cupy_turbo.device import open_device
from cupy_turbo.engine.engine import Engine
from cupy_turbo.engine.fill import BatchFiller
from cupy_turbo.engine.request import RequestEvent
from cupy_turbo.models.language_model import LanguageModel
from cupy_turbo.models.step import Step
from cupy_turbo.testing.faults import WHERE, Fault, inject
from tests.e2e.fault_table import Answer, Table, answers, check, collect, engine_threads, load, request, running, told

KERNELS = [
    *("slot_init", "block_table_update", "embedding", "rms_norm", "gemm_small", "rope_kv_write"),
    *("attention_prefill_simt", "attention_decode", "attention_combine", "add_rms_norm", "silu_mul"),
    *("gather_rows", "argmax", "sample", "commit_tokens"),
]

FAULTS = [
    *(Fault(where="kernel", name=name, call=1 + index % 2) for index, name in enumerate(KERNELS)),
    Fault(where="kernel", call=50, times=40),
    Fault(where="kernel", name="commit_tokens", times=8),
    Fault(where="compile", name="silu_mul"),
    Fault(where="compile", name="attention_decode", times=2),
    *(Fault(where="copy", call=call) for call in (1, 2, 3, 4, 9)),
    Fault(where="copy", call=2, times=5),
    *(Fault(where="record", call=call) for call in (1, 2, 3, 4, 5, 6, 8)),
    Fault(where="record", times=9),
    *(Fault(where="wait", call=call) for call in (1, 2, 3, 4)),
    *(Fault(where="sync", call=call) for call in (1, 2, 5)),
    Fault(where="sync", times=4),
    *(Fault(where="capture", call=call, times=times) for call, times in ((1, 1), (1, 50))),
]
# Late enough that both input arenas were filled before: what a failed copy leaves there are then old slots and ids.
LATE = [
    *(Fault(where="run", name=name, call=9) for name in ("copy", "record", "wait")),
    *(Fault(where="run", name=name, call=2) for name in KERNELS[::2]),
    Fault(where="run", call=300, times=60),
    Fault(where="run", name="commit_tokens", error=KernelError("divergent barrier", kernel="commit_tokens")),
]


@pytest.fixture(scope="module")
def loaded(device_kind: str) -> Iterator[LoadedModel]:
    loaded = load(device_kind)
    yield loaded
    loaded.close()


@pytest.fixture(scope="module")
def quiet(loaded: LoadedModel) -> dict[str, Answer]:
    """What everybody gets when nothing fails."""
    with running(loaded) as engine:
        return answers(engine)


@pytest.fixture(scope="module")
def table() -> Iterator[Table]:
    table = Table()
    yield table
    print(f"\n{table}")


def survive(loaded: LoadedModel, quiet: dict[str, Answer], fault: Fault) -> str:
    """Run a round with the fault and one behind it on the same engine; say how the first one ended."""
    with running(loaded) as engine:
        with inject(loaded.device, fault) as (injection,):
            ends = check(answers(engine), quiet)
        after = check(answers(engine), quiet)
    if not injection.fired and loaded.device.kind == "cuda":
        pytest.skip("this GPU takes another kernel")
    assert injection.fired, "the fault was never reached"
    assert set(after) == {"length"}, f"the round behind the fault: {told(after)}"
    engine.check_integrity()
    return f"{told(ends)}; {injection.fired} calls failed"


def label(fault: Fault) -> str:
    times = f" x{fault.times}" if fault.times > 1 else ""
    return f"{fault.where} {fault.name or ''}#{fault.call}{times}".replace(" #", " #")


@pytest.mark.parametrize("fault", FAULTS, ids=label)
def test_a_refused_call(loaded: LoadedModel, quiet: dict[str, Answer], table: Table, fault: Fault) -> None:
    table.add(WHERE[fault.where], label(fault), survive(loaded, quiet, fault))


@pytest.mark.parametrize("fault", LATE, ids=label)
def test_a_failure_that_shows_late(
    loaded: LoadedModel, quiet: dict[str, Answer], table: Table, device_kind: str, fault: Fault
) -> None:
    """What was queued fails when the device gets to it: on a GPU every such failure loses the device."""
    if device_kind != "host":
        pytest.skip("on a GPU this is the death of the device")
    table.add(WHERE["run"], label(fault), survive(loaded, quiet, fault))


class Raising:
    """A model that raises in one of its three calls."""

    def __init__(self, model: LanguageModel, where: str, call: int, error: BaseException) -> None:
        self._model, self._where, self._left, self._error = model, where, call, error

    def prepare(self, step: Step) -> None:
        self._call("prepare", step)

    def forward(self, step: Step) -> None:
        self._call("forward", step)

    def unprepare(self, step: Step) -> None:
        self._call("unprepare", step)

    def _call(self, name: str, step: Step) -> None:
        if name == self._where:
            self._left -= 1
            if self._left == 0:
                raise self._error
        getattr(self._model, name)(step)


@pytest.mark.parametrize("call", [1, 2, 9])
@pytest.mark.parametrize("where", ["prepare", "forward", "unprepare"])
def test_the_model_raises(loaded: LoadedModel, quiet: dict[str, Answer], table: Table, where: str, call: int) -> None:
    with running(loaded, Raising(loaded.language_model, where, call, RuntimeError("boom"))) as engine:
        got, after = answers(engine), answers(engine)
    engine.check_integrity()
    assert set(check(after, quiet)) == {"length"}
    ends = check(got, quiet)
    for answer in got.values():
        assert answer.end is not None
        if answer.end.error is not None:
            assert isinstance(answer.end.error, RequestFailedError)
            assert str(answer.end.error.__cause__) == "boom"
    table.add("the model raises", f"{where} #{call}", told(ends))


@pytest.mark.parametrize("error", [DeviceLostError("gone"), SystemExit(3), KeyboardInterrupt()], ids=repr)
def test_what_ends_the_engine(
    loaded: LoadedModel, quiet: dict[str, Answer], table: Table, error: BaseException
) -> None:
    """A lost device, and what no thread survives: everybody is told once, threads end, a new engine works."""
    with running(loaded, Raising(loaded.language_model, "forward", 3, error)) as engine:
        got = answers(engine)
        with pytest.raises(EngineDeadError, match=type(error).__name__):
            engine.submit(request(0, Queue()))
    ends = check(got, quiet)
    failed = [answer.end.error for answer in got.values() if answer.end is not None and answer.end.error is not None]
    assert failed
    assert all(isinstance(each, EngineDeadError) and each.__cause__ is error for each in failed)
    assert len({id(each) for each in failed}) == len(failed), "raising writes to an exception: one for each request"
    with running(loaded) as second:
        assert set(check(answers(second), quiet)) == {"length"}
    table.add("the engine dies", type(error).__name__, told(ends))


def test_the_executor_thread_is_killed(loaded: LoadedModel, quiet: dict[str, Answer], table: Table) -> None:
    """An exception out of nowhere between two steps, where no batch can carry it."""
    with running(loaded) as engine:
        check(answers(engine), quiet)
        loop = engine._executor._loop
        assert loop is not None
        assert loop.thread is not None
        assert loop.thread.ident is not None
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(loop.thread.ident), ctypes.py_object(SystemExit))
        got = answers(engine)
    assert all(answer.end is not None and isinstance(answer.end.error, EngineDeadError) for answer in got.values())
    table.add("the executor thread is killed", "between steps", told(check(got, quiet)))


def test_a_fill_that_raises(loaded: LoadedModel, quiet: dict[str, Answer], table: Table, monkeypatch) -> None:
    real, calls = BatchFiller._fill_inits, []

    def fill_inits(*args: object) -> None:
        calls.append(1)
        if len(calls) == 2:
            raise ValueError("this request cannot be written down")
        real(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(BatchFiller, "_fill_inits", fill_inits)
    with running(loaded) as engine:
        ends = check(answers(engine), quiet)
        assert set(check(answers(engine), quiet)) == {"length"}
    assert ends["error"]
    engine.check_integrity()
    table.add("a batch cannot be filled", "#2", told(ends))


def test_an_observer_that_raises_is_logged(loaded: LoadedModel, quiet: dict[str, Answer], caplog) -> None:
    def observe(batch: object) -> None:
        raise ZeroDivisionError

    engine = Engine(loaded.language_model, loaded.device, loaded.engine_config, observe=observe)
    engine.start()
    assert set(check(answers(engine), quiet)) == {"length"}
    engine.close()
    engine.check_integrity()
    assert "observer" in caplog.text


def test_a_consumer_that_closes_its_queue_cancels(loaded: LoadedModel, quiet: dict[str, Answer]) -> None:
    mine: Queue[RequestEvent] = Queue()
    gone = request(0, mine, max_tokens=100)
    with running(loaded) as engine:
        engine.submit(gone)
        mine.pop(timeout=60)
        mine.close()
        assert set(check(answers(engine), quiet)) == {"length"}
    engine.check_integrity()
    assert gone.finish_reason == "abort"


def test_closing_an_engine_that_never_started_answers_everybody(loaded: LoadedModel) -> None:
    engine = Engine(loaded.language_model, loaded.device, loaded.engine_config)
    events: Queue[RequestEvent] = Queue()
    engine.submit(request(0, events))
    engine.close()
    (answer,) = collect(events, {"0": Answer()}).values()
    assert answer.end is not None
    assert answer.end.finish_reason == "abort"


@pytest.mark.parametrize("where", ["empty", "pinned"])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_loading_without_memory(device_kind: str, table: Table, monkeypatch, where: str, share: float) -> None:
    """Any allocation may fail, the engine's own included: an error by name, no thread, and nothing keeps the device."""
    options = {"max_model_len": 64, "max_num_seqs": 2, "block_size": 16}
    with LLM("demo", device=device_kind, **options) as llm:
        counts = llm.device.statistics()
    total = counts.device_allocations if where == "empty" else counts.pinned_allocations
    call = max(1, round(share * total))
    device = open_device(device_kind)
    monkeypatch.setattr(loading, "open_device", lambda spec: device)
    with inject(device, Fault(where=where, call=call)), pytest.raises(DeviceError, match="injected"):
        LLM("demo", device=device_kind, **options)
    assert not engine_threads()
    with pytest.raises(DeviceError, match="closed"):
        device.empty(1, "u1")
    table.add(WHERE[where], f"allocation {call} of {total}", "DeviceError from LLM(...)")


def test_close_frees_the_memory_while_the_llm_is_still_held(device_kind: str) -> None:
    llm = LLM("demo", device=device_kind, max_model_len=64, max_num_seqs=2)
    llm.generate([1, 2, 3])
    pool = weakref.ref(llm._loaded.language_model.network.kv_cache)
    llm.close()
    gc.collect()
    assert pool() is None
