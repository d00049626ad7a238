"""Ctrl-C, fork, exit, a dead GPU, and threads that close or drop an LLM: what happens to a process around an engine."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
import weakref

import pytest

from cupy_turbo import LLM, SamplingParams
from cupy_turbo.api.loading import LoadedModel
from cupy_turbo.core.errors import EngineDeadError
from tests.e2e.fault_table import engine_threads

OPTIONS = {"max_model_len": 128, "max_num_seqs": 4, "block_size": 16, "max_num_batched_tokens": 64}
LONG = SamplingParams(temperature=0, ignore_eos=True)
SHORT = SamplingParams(temperature=0, max_tokens=6)


@pytest.fixture
def llm(device_kind):
    with LLM("demo", device=device_kind, **OPTIONS) as llm:
        yield llm
    assert not engine_threads()
    llm.engine.check_integrity()


def run_script(device_kind: str, source: str) -> str:
    """Run a script in a process of its own; it must exit with 0 and say nothing on stderr."""
    preamble = f"""
import gc, os, random, signal, sys, threading, time
from cupy_turbo import LLM, SamplingParams
from cupy_turbo.core.errors import DeviceLostError, EngineDeadError
LONG = SamplingParams(temperature=0, ignore_eos=True)
SHORT = SamplingParams(temperature=0, max_tokens=6)
llm = LLM("demo", device={device_kind!r}, **{OPTIONS!r})
def short():
    return [tuple(output.outputs[0].token_ids) for output in llm.generate(["ROMEO:", "JULIET:"], SHORT)]
quiet = short()
"""
    # From 3.12 on Python warns of what these scripts do on purpose: fork beside threads.
    command = [sys.executable, "-W", "ignore:This process:DeprecationWarning", "-c", preamble + source]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


def test_ctrl_c_at_any_moment(device_kind):
    """SIGINT while requests are built, submitted, awaited: each is cancelled, and the next call is right."""
    said = run_script(
        device_kind,
        """
random.seed(5)
hits = 0
for round in range(25):
    delay = random.choice([0.0, 0.001, 0.01, 0.05]) * random.random()
    timer = threading.Timer(delay, os.kill, (os.getpid(), signal.SIGINT))
    try:
        timer.start()
        llm.generate([f"{round} {i}" for i in range(9)], LONG)
        time.sleep(1)
    except KeyboardInterrupt:
        hits += 1
    timer.join()
    if round % 5 == 4:
        assert short() == quiet
llm.close()
llm.engine.check_integrity()
print(hits, [thread.name for thread in threading.enumerate() if thread.name.startswith("cupy_turbo")])
""",
    )
    assert said.strip() == "25 []"


def test_ctrl_c_in_a_stream(device_kind):
    said = run_script(
        device_kind,
        """
for round in range(8):
    timer = threading.Timer(0.002 * round, os.kill, (os.getpid(), signal.SIGINT))
    try:
        timer.start()
        for delta in llm.stream("ROMEO:", LONG):
            pass
        time.sleep(1)
    except KeyboardInterrupt:
        timer.join()
assert short() == quiet
llm.close()
llm.engine.check_integrity()
""",
    )
    assert said == ""


@pytest.mark.parametrize("leave", ["pass", "sys.exit(0)", "del llm; gc.collect()"])
def test_exit_with_requests_live(device_kind, leave):
    said = run_script(
        device_kind,
        f"""
streams = [llm.stream("x", LONG) for _ in range(6)]
next(streams[0])
waiting = threading.Thread(target=llm.generate, args=(["a"] * 9, LONG), daemon=True)
waiting.start()
{leave}
""",
    )
    assert said == ""


@pytest.mark.parametrize("leave", ["os._exit(0)", "sys.exit(0)"])
def test_a_forked_child_is_refused_and_the_parent_goes_on(device_kind, leave):
    """The child has no engine thread and may hold a lock that nobody releases: it gets an error, never a hang."""
    said = run_script(
        device_kind,
        f"""
stream = llm.stream("x", LONG)
next(stream)
for _ in range(5):
    child = os.fork()
    if not child:
        for use in (lambda: llm.generate("x"), lambda: llm.stream("x"), lambda: llm.chat([])):
            try:
                use()
            except EngineDeadError as error:
                assert "forked" in str(error) and "spawn" in str(error), error
            else:
                os._exit(3)
        stream.close()
        llm.close()
        assert not llm.engine.is_alive
        del llm, stream
        gc.collect()
        {leave}
    assert os.waitpid(child, 0)[1] == 0
stream.close()
assert short() == quiet
llm.close()
llm.engine.check_integrity()
""",
    )
    assert said == ""


def test_an_out_of_bounds_kernel_kills_the_engine_and_not_the_process(device_kind):
    """A real sticky error: an array at an address that nobody has."""
    if device_kind != "cuda":
        pytest.skip("the host device has no sticky error")
    said = run_script(
        device_kind,
        """
import cupy, logging
from cupy_turbo.ops.silu_mul import silu_mul
logging.getLogger("cupy_turbo").setLevel(logging.CRITICAL)  # the engine logs what it died of
network = llm._loaded.language_model.network
apply, calls = network.state.apply, []
nowhere = cupy.cuda.MemoryPointer(cupy.cuda.UnownedMemory(1 << 46, 1 << 20, None, 0), 0)
activated = network.workspace.activated[:1]
wild_array = cupy.ndarray(activated.shape, activated.dtype, memptr=nowhere)
def wild(step, stream):
    apply(step, stream)
    calls.append(1)
    if len(calls) == 3:
        silu_mul(wild_array, network.workspace.gate_up[:1], stream=stream)
network.state.apply = wild
outputs = llm.generate(["a", "b", "c", "d", "e", "f"], LONG)
print({output.outputs[0].finish_reason for output in outputs})
try:
    llm.generate("x")
except EngineDeadError as error:
    print(isinstance(error.__cause__, DeviceLostError))
llm.close()
print([thread.name for thread in threading.enumerate() if thread.name.startswith("cupy_turbo")])
""",
    )
    assert said.split("\n")[:3] == ["{'error'}", "True", "[]"]


def test_close_from_another_thread_while_generating(llm):
    """Everybody who waits gets an answer, whoever closes, and both closers come back to a closed model."""
    outputs = []
    waiting = [
        threading.Thread(target=lambda: outputs.extend(llm.generate(["a", "b", "c"], LONG, use_tqdm=False)))
        for _ in range(3)
    ]
    stream = llm.stream("x", LONG)
    next(stream)
    for thread in waiting:
        thread.start()
    closers = [threading.Thread(target=llm.close) for _ in range(2)]
    for thread in closers:
        thread.start()
    llm.close()
    assert not engine_threads()
    for thread in [*waiting, *closers]:
        thread.join(30)
        assert not thread.is_alive()
    assert {output.outputs[0].finish_reason for output in outputs} <= {"abort", "length"}
    assert [delta.finish_reason for delta in stream][-1] == "abort"
    for call in (lambda: llm.generate("x"), lambda: llm.stream("x"), lambda: llm.generate([])):
        with pytest.raises(EngineDeadError, match="closed"):
            call()


def idle(llm: LLM) -> bool:
    engine = llm.engine
    return not (engine._slots.num_held or engine._scheduler.num_waiting or engine._under_way or len(engine._commands))


def wait_until_idle(llm: LLM, seconds: float) -> None:
    ticks = threading.Event()
    for _ in range(int(seconds * 100)):
        if idle(llm):
            return
        ticks.wait(0.01)
    raise AssertionError("requests that nobody wants are still running")


@pytest.mark.parametrize("way", ["drop", "close", "with", "raise"])
def test_a_stream_that_is_left_ends_its_request(llm, way, monkeypatch):
    """Also one that was never iterated. Endless requests would keep the engine busy long after."""
    monkeypatch.setattr(type(llm.engine._filler), "fill", slowly(type(llm.engine._filler).fill))
    streams = [llm.stream("x", LONG) for _ in range(10)]
    if way == "close":
        for stream in streams:
            stream.close()
    elif way == "with":
        for stream in streams:
            with stream:
                pass
    elif way == "raise":
        for stream in streams:
            with pytest.raises(ZeroDivisionError), stream:
                1 / 0  # noqa: B018
    else:
        next(streams[0])
        stream = None
        streams.clear()
    wait_until_idle(llm, 3.0)


def slowly(fill):
    """A step that takes 20 ms: three rounds of 120 tokens would take over seven seconds."""

    def slow(*args):
        threading.Event().wait(0.02)
        fill(*args)

    return slow


def test_a_tokenizer_that_raises(llm, monkeypatch):
    (quiet,) = llm.generate("ROMEO:", SHORT)
    tokenizer = llm.tokenizer

    def broken(*args, **options):
        raise UnicodeError("no such text")

    with monkeypatch.context() as patch:
        patch.setattr(type(tokenizer), "encode", broken)
        with pytest.raises(UnicodeError):
            llm.generate(["a", "b"], SHORT)
        with pytest.raises(UnicodeError):
            llm.stream("a", SHORT)
    stream = llm.stream("ROMEO:", LONG)
    with monkeypatch.context() as patch:
        patch.setattr(stream._detokenizer, "push", broken)
        with pytest.raises(UnicodeError):
            next(stream)
    assert list(stream) == []
    assert llm.generate("ROMEO:", SHORT)[0].outputs == quiet.outputs
    wait_until_idle(llm, 10)


@pytest.mark.parametrize("thread_name", ["cupy_turbo-engine", "cupy_turbo-executor"])
def test_a_model_collected_on_its_own_thread_closes_without_waiting_for_itself(device_kind, thread_name, monkeypatch):
    """The garbage collector runs finalizers on any thread. On the executor's, a plain join would wait for ever."""
    llm = LLM("demo", device=device_kind, **OPTIONS)
    llm.generate("x", SHORT)
    holder = [llm]
    dropped = threading.Event()
    owner = type(llm.engine._filler) if thread_name == "cupy_turbo-engine" else type(llm.engine._executor._loop)
    method = "fill" if thread_name == "cupy_turbo-engine" else "run_batch"
    original = getattr(owner, method)

    def dropping(*args):
        if threading.current_thread().name == thread_name and holder:
            holder.clear()
            gc.collect()
            dropped.set()
        original(*args)

    alive_at_close: list[list[str]] = []
    real_close = LoadedModel.close

    def close(loaded):
        alive_at_close.append([name for name in engine_threads() if "closer" not in name])
        real_close(loaded)

    monkeypatch.setattr(owner, method, dropping)
    monkeypatch.setattr(LoadedModel, "close", close)
    stream = llm.stream("x", LONG)
    gone = weakref.ref(llm)
    del llm
    reasons = [delta.finish_reason for delta in stream]
    assert dropped.wait(30)
    assert reasons[-1] == "abort"
    assert gone() is None
    for thread in threading.enumerate():
        if thread.name.startswith("cupy_turbo"):
            thread.join(30)
            assert not thread.is_alive()
    assert alive_at_close == [[]], "the device was closed under a running engine"


def test_requests_may_be_built_by_many_threads(llm):
    """Seeds and names are given out one by one: no two alike, none lost, and nobody is refused."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    outputs: list[str] = []
    errors: list[BaseException] = []

    def ask() -> None:
        try:
            for _ in range(40):
                outputs.extend(o.request_id for o in llm.generate([[1, 2]], SamplingParams(max_tokens=1)))
        except BaseException as error:
            errors.append(error)

    try:
        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    finally:
        sys.setswitchinterval(interval)
    assert not errors
    assert len(set(outputs)) == len(outputs) == 160
