"""Mistakes in the engine, its ring and its executor, and the searches that must find them.

A mistake is an edit of the source: a text that must be there, and what takes its place.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test

from cupy_turbo.engine import engine, model_executor
from cupy_turbo.engine.batch import BatchData
from cupy_turbo.engine.block_manager import BlockManager
from cupy_turbo.engine.delivery import Delivery
from cupy_turbo.engine.engine import Engine
from cupy_turbo.engine.fill import BatchFiller
from cupy_turbo.engine.request import Request
from cupy_turbo.engine.scheduler import Scheduler
from cupy_turbo.engine.slots import SlotTable
from cupy_turbo.engine.step_graphs import StepGraphs
from tests.property.engine_machine import EngineMachine
from tests.property.mutants import Mutant, few
from tests.property.test_block_manager import Blocks
from tests.property.test_engine import test_a_late_failure_ends_all_who_hold_a_slot as late_failure
from tests.property.test_phases import ASKED, Asked, run
from tests.property.test_ring import Ring
from tests.property.test_scheduler import test_everybody_is_served_in_order as serve
from tests.property.toy_model import open_toy_device
from tests.unit.engine.test_scheduler import test_the_last_position_is_sampled_but_never_computed
from tests.unit.engine.test_settle import test_a_failed_batch_waits_for_the_whole_device as settle

Executor = model_executor._ExecutorLoop


# Searches.


def search_engine() -> None:
    run_state_machine_as_test(EngineMachine, settings=few(150))


def search_ring() -> None:
    run_state_machine_as_test(type("Ring", (Ring,), {"patience": 0.5}), settings=few(60))


def search_blocks() -> None:
    run_state_machine_as_test(Blocks, settings=few(60))


def search_scheduler() -> None:
    drawn = serve.hypothesis._given_kwargs  # type: ignore[attr-defined]
    few(150)(given(**drawn)(serve.hypothesis.inner_test))()  # type: ignore[attr-defined]


def search_phases() -> None:
    @few(8)
    @given(asked=st.lists(ASKED, min_size=4, max_size=8))
    def search(asked: list[Asked]) -> None:
        for phases in (1, 2):
            run(device, asked, phases)

    with open_toy_device("host") as device:
        search()
    device.close()


# Edits.


def mutate(owner: Any, name: str, edits: dict[str, str], patch: pytest.MonkeyPatch) -> None:
    """Recompile a function or method with pieces of its source replaced."""
    mutated = getattr(owner, name)
    source = textwrap.dedent(inspect.getsource(mutated))
    for old, new in edits.items():
        assert source.count(old) == 1, f"{mutated.__qualname__} has {source.count(old)} times {old!r}"
        source = source.replace(old, new)
    names: dict[str, Any] = {}
    exec(compile(f"from __future__ import annotations\n{source}", "<mutant>", "exec"), mutated.__globals__, names)
    patch.setattr(owner, name, names[mutated.__name__])


def mutant(name: str, suite: str, owner: Any, method: str, **edits: Any) -> Mutant:
    """`edits` holds one dictionary `at` of old and new source."""
    folder = "unit/engine" if suite in ("test_settle.py", "test_scheduler.py::test_the_last_position") else "property"
    return Mutant(name, f"tests/{folder}/{suite}", SEARCHES[suite], partial(mutate, owner, method, edits["at"]))


SEARCHES: dict[str, Callable[[], None]] = {
    "test_engine.py": search_engine,
    "test_engine.py::test_a_late_failure": late_failure,
    "test_ring.py": search_ring,
    "test_block_manager.py": search_blocks,
    "test_scheduler.py": search_scheduler,
    "test_scheduler.py::test_the_last_position": test_the_last_position_is_sampled_but_never_computed,
    "test_phases.py": search_phases,
    "test_settle.py": settle,
}


def share_staging(patch: pytest.MonkeyPatch) -> None:
    """All phases write into one staging arena: reused one step early."""
    first: dict[int, Any] = {}
    init = BatchData.__init__

    def shared(self: BatchData, device: Any, limits: Any, *, phase: int, timing: bool = False) -> None:
        init(self, device, limits, phase=phase, timing=timing)
        self.inputs = first.setdefault(id(device), self.inputs)

    patch.setattr(BatchData, "__init__", shared)


def release_early(patch: pytest.MonkeyPatch) -> None:
    """Nobody counts the batches under way, so an ended slot gives back its blocks at once."""
    mutate(BatchFiller, "fill", {"self._slots.in_flight[batch.held] += 1": "pass"}, patch)
    mutate(Delivery, "give_back", {"self._slots.in_flight[held] -= 1": "return"}, patch)


def end_twice(patch: pytest.MonkeyPatch) -> None:
    """Each of three places would keep a second end from its consumer; none of them does."""
    mutate(Delivery, "deliver", {"self._slots.live[slots] & (slots >= 0)": "(slots >= 0)"}, patch)
    mutate(Delivery, "end", {"if not self._slots.live[slot]:": "if False:"}, patch)
    mutate(Request, "deliver", {"if self.finish_reason is not None:": "if False:"}, patch)


ENGINE_MUTANTS = [
    # The ring: events, staging and order.
    Mutant("all phases share one staging arena", "tests/property/test_engine.py", search_engine, share_staging),
    mutant("ready is recorded before the copy", "test_ring.py", Executor, "run_batch",
           at={"batch.inputs.upload(self.upload)": "batch.ready.record(self.upload)",
               "        batch.ready.record(self.upload)\n        self.stream.wait":
               "        batch.inputs.upload(self.upload)\n        self.stream.wait"}),
    mutant("the compute stream does not wait for ready", "test_ring.py", Executor, "run_batch",
           at={"self.stream.wait(batch.ready)": "pass"}),
    mutant("the download does not wait for done", "test_ring.py", Executor, "run_batch",
           at={"self.download.wait(batch.done)": "pass"}),
    mutant("done is recorded before the results are written", "test_ring.py", Executor, "run_batch",
           at={"self.model.unprepare(batch)": "batch.done.record(self.stream); self.model.unprepare(batch)",
               "    try:\n        batch.done.record(self.stream)\n": "    try:\n"}),
    mutant("fetched is recorded before the copy", "test_ring.py", Executor, "run_batch",
           at={"batch.results.download(self.download)": "batch.fetched.record(self.download)",
               "        batch.fetched.record(self.download)\n    except":
               "        batch.results.download(self.download)\n    except"}),
    mutant("a failed batch does not come back", "test_ring.py", Executor, "_run",
           at={"self.outbound.push(batch)": "batch.error or self.outbound.push(batch)"}),
    mutant("a failed step's rows run on in the batch behind it", "test_ring.py", Executor, "_mask_undefined",
           at={"if not self._undefined:": "if True:"}),
    mutant("a failed step's slot stays masked for its next owner", "test_ring.py", Executor, "_mask_undefined",
           at={"self._undefined.difference_update": "set().difference_update"}),
    mutant("tokens are read before they were fetched", "test_phases.py", engine, "wait_for",
           at={"batch.fetched.sync()": "pass"}),
    # Filling a batch.
    mutant("perm is off by one", "test_engine.py", BatchFiller, "_fill_decode",
           at={'fields["perm"][:count], fields["perm"][count:rows] = decode':
               'fields["perm"][:count], fields["perm"][count:rows] = np.roll(decode, 1)'}),
    mutant("the token fed back is another slot's", "test_engine.py", BatchFiller, "_fill_decode",
           at={"-decode - 1": "-np.roll(decode, 1) - 1"}),
    mutant("padding rows of a graph carry slot 0", "test_engine.py", BatchFiller, "_fill_decode",
           at={"= decode, PADDING": "= decode, 0"}),
    mutant("a new block is taken one token late", "test_engine.py", BatchFiller, "_fill_block_updates",
           at={"% self._block_size == 0": "% self._block_size == 1"}),
    mutant("a chunk that ends a prompt does not sample", "test_engine.py", BatchFiller, "_fill_samples",
           at={"chunk.stop == prompt_len[chunk.slot]": "chunk.stop > prompt_len[chunk.slot]"}),
    mutant("every chunk samples", "test_engine.py", BatchFiller, "_fill_samples",
           at={"chunk.stop == prompt_len[chunk.slot]": "chunk.stop <= prompt_len[chunk.slot]"}),
    mutant("the stop ids of a slot's last owner stay", "test_engine.py", BatchFiller, "_fill_inits",
           at={"stop_ids[:] = PADDING": "pass"}),
    # Ends, cancels, release.
    Mutant("blocks are freed before in_flight is zero", "tests/property/test_engine.py", search_engine, release_early),
    mutant("an ended prompt goes on in chunks", "test_engine.py", Delivery, "end",
           at={"self._scheduler.forget(slot)": "pass"}),
    Mutant("what has ended is delivered again", "tests/property/test_engine.py", search_engine, end_twice),
    mutant("cancelling somebody who waits is forgotten", "test_engine.py", Engine, "_obey",
           at={'request.deliver(finish_reason="abort")': "pass"}),
    mutant("close drops those who wait", "test_engine.py", Engine, "_end_all",
           at={"request.deliver((), *self._last_words(dead))": "pass"}),
    mutant("a failed step loses its requests", "test_engine.py", Engine, "_fail",
           at={"self._delivery.fail(slots, cause)": "pass"}),
    mutant("a failed step ends every request", "test_engine.py", Engine, "_fail",
           at={"batch.held.tolist() if late is None else": "self._slots.held() if late is None else"}),
    mutant(
        "a failure that shows late ends only its own batch",
        "test_engine.py::test_a_late_failure",
        Engine,
        "_fail",
        at={"batch.held.tolist() if late is None else self._slots.held()": "batch.held.tolist()"},
    ),
    mutant(
        "after a failure nobody waits for the device",
        "test_settle.py",
        engine,
        "wait_for",
        at={"device.synchronize()": "pass"},
    ),
    # Graphs.
    mutant("one graph serves both phases", "test_engine.py", StepGraphs, "_key",
           at={"return step.phase, step.bucket": "return 0, step.bucket"}),
    mutant("a graph that was captured is not run", "test_engine.py", StepGraphs, "forward",
           at={"graph = self._capture(key, step)": "self._capture(key, step); return"}),
    # Scheduler and blocks.
    mutant("the last position is computed too", "test_scheduler.py::test_the_last_position", SlotTable, "decoding",
           at={"self.computed < self.stop_position - 1": "self.computed < self.stop_position"}),
    mutant("last come, first served", "test_scheduler.py", Scheduler, "schedule",
           at={"self._waiting.popleft()": "self._waiting.pop()"}),
    mutant("the token budget is off by one", "test_scheduler.py", Scheduler, "_plan_chunk",
           at={"start + budget": "start + budget + 1"}),
    mutant("decoding rows are not counted", "test_scheduler.py", Scheduler, "schedule",
           at={"self._limits.max_num_tokens - len(plan.decode_slots)": "self._limits.max_num_tokens"}),
    mutant("a request is admitted without its blocks", "test_scheduler.py", Scheduler, "_can_admit",
           at={"<= self._blocks.num_unpromised": ">= 0"}),
    mutant("a begun prompt waits for new ones", "test_scheduler.py", Scheduler, "_admit",
           at={"self._prefilling.append(slot)": "pass"}),
    mutant("a released slot keeps its promise", "test_block_manager.py", BlockManager, "release",
           at={"self._promised[slot] = 0": "pass", "self._total_promised -= self._promised[slot]": "pass"}),
    mutant("a block is given twice", "test_block_manager.py", BlockManager, "take",
           at={"self._free.pop()": "self._free[-1]"}),
    mutant("released blocks are lost", "test_block_manager.py", BlockManager, "release",
           at={"self._free.extend(reversed(self._owned[slot]))": "pass"}),
]  # fmt: skip
