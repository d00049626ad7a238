"""Hypothesis strategies for programs and schedules. They need the extra ``test``."""

from __future__ import annotations

import itertools
from functools import partial
from typing import TYPE_CHECKING, Any

from cupy_turbo.testing.policies import DrawnPolicy
from cupy_turbo.testing.program_writer import WAYS_TO_ORDER, ProgramWriter
from cupy_turbo.testing.queue_program import QueueProgram, write_queue_program
from cupy_turbo.testing.stream_program import BUFFERS, DEVICE_BUFFERS, PINNED_BUFFERS, StreamProgram, Work

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy


def _strategies() -> Any:
    """Import hypothesis, which users of the package need not have."""
    try:
        from hypothesis import strategies
    except ImportError as error:
        raise ImportError("strategies need hypothesis: pip install 'cupy_turbo[test]'") from error
    return strategies


def drawn_policies() -> SearchStrategy[DrawnPolicy]:
    """Policies whose every choice hypothesis makes and shrinks.

    Returns
    -------
    SearchStrategy of DrawnPolicy
        To be used within the test function, on one thread at a time.

    Examples
    --------
    >>> from cupy_turbo import open_device
    >>> from hypothesis import given, settings
    >>> @settings(max_examples=10)
    ... @given(program=stream_programs(), policy=drawn_policies())
    ... def test_every_schedule_gives_the_same_bytes(program, policy):
    ...     program.check(open_device("host", policy=policy, workers=1), policy)
    >>> test_every_schedule_gives_the_same_bytes()
    """
    st = _strategies()
    found: SearchStrategy[DrawnPolicy] = st.builds(DrawnPolicy, st.randoms(use_true_random=False))
    return found


def stream_programs(
    *, ordered: bool = True, with_kernels: bool = False, max_actions: int = 30
) -> SearchStrategy[StreamProgram]:
    """Programs for a device: streams, events, copies, fills, graphs.

    Parameters
    ----------
    ordered : bool, default True
        Order all accesses that would race, so that the outcome is known. False leaves the outcome to the schedule.
    with_kernels : bool, default False
        Let kernels move bytes too.
    max_actions : int, default 30
        An action is one to a dozen calls.

    Returns
    -------
    SearchStrategy of StreamProgram

    Examples
    --------
    >>> from cupy_turbo import open_device
    >>> from hypothesis import given, settings
    >>> @settings(max_examples=10)
    ... @given(program=stream_programs(max_actions=5))
    ... def test_my_device(program):
    ...     program.check(open_device("host", policy="random"))
    >>> test_my_device()
    """
    st = _strategies()

    def write(actions: list[list[Any]]) -> StreamProgram:
        writer = ProgramWriter(ordered=ordered)
        for action in list(itertools.chain.from_iterable(actions))[:max_actions]:
            action(writer)
        return writer.program()

    # Lists of lists, for hypothesis draws five elements on average whatever the limit.
    found: SearchStrategy[StreamProgram] = st.lists(st.lists(_actions(st, with_kernels))).map(write)
    return found


def _actions(st: Any, with_kernels: bool) -> Any:
    """One thing that a program may do next, as a function of its writer."""
    numbers = st.integers(0, 4)  # of a stream or an event
    byte_values, ways = st.integers(0, 255), st.one_of(st.just(WAYS_TO_ORDER[0]), st.sampled_from(WAYS_TO_ORDER))
    work_lists = st.lists(_work(st, with_kernels), min_size=1, max_size=4)
    on_device, pinned = st.sampled_from(DEVICE_BUFFERS), st.sampled_from(PINNED_BUFFERS)

    def action(method: Any, *arguments: Any) -> Any:
        names = method.__code__.co_varnames[1 : 1 + len(arguments)]
        return st.fixed_dictionaries(dict(zip(names, arguments, strict=True))).map(
            lambda given: partial(method, **given)
        )

    writer = ProgramWriter
    run = action(writer.run, work_lists, numbers, ways)
    return st.one_of(
        run,
        run,
        run,
        action(writer.add_stream, st.integers(-5, 0)),
        action(writer.record, numbers, numbers),
        action(writer.wait, numbers, numbers),
        action(writer.query, numbers),
        action(writer.sync_event, numbers),
        action(writer.sync_stream, numbers),
        action(writer.write_pinned, pinned, byte_values, ways),
        action(writer.read_pinned, pinned, ways),
        action(writer.read_back, pinned, on_device, numbers, st.sampled_from(WAYS_TO_ORDER)),
        action(writer.run_captured, work_lists, numbers, numbers, st.integers(0, 2), ways),
        action(writer.fail_in_capture, work_lists, numbers),
        action(writer.copy_from_nobodys, on_device, byte_values, numbers, ways),
        action(writer.share_stream, numbers),
        action(writer.drop_stream, numbers),
    )


def _work(st: Any, with_kernels: bool) -> Any:
    """One operation; a copy has a device array on one side, a kernel on both."""
    on_device, pinned = st.sampled_from(DEVICE_BUFFERS), st.sampled_from(PINNED_BUFFERS)
    fills = st.builds(Work, on_device, byte=st.integers(0, 255))
    pairs = st.one_of(st.tuples(on_device, st.sampled_from(BUFFERS)), st.tuples(pinned, on_device))
    copies = pairs.filter(lambda pair: pair[0] != pair[1]).map(lambda pair: Work(*pair))
    if not with_kernels:
        return st.one_of(fills, copies)
    pairs = st.tuples(on_device, on_device).filter(lambda pair: pair[0] != pair[1])
    return st.one_of(fills, copies, pairs.map(lambda pair: Work(pair[0], pair[1], by_kernel=True)))


def queue_programs(*, max_calls: int = 30) -> SearchStrategy[QueueProgram]:
    """Programs for a queue on one thread, with what each call must give.

    Parameters
    ----------
    max_calls : int, default 30

    Returns
    -------
    SearchStrategy of QueueProgram

    Examples
    --------
    >>> from cupy_turbo import Queue
    >>> from hypothesis import given, settings
    >>> @settings(max_examples=10)
    ... @given(program=queue_programs())
    ... def test_my_queue(program):
    ...     program.check(Queue)
    >>> test_my_queue()
    """
    st = _strategies()
    # Calls that end a queue are rare, for little happens after them.
    names = st.sampled_from([*["push", "try_push"] * 4, *["pop", "try_pop"] * 3, "statistics", "close", "abort"])
    capacities = st.one_of(st.none(), st.integers(1, 3))
    calls = st.lists(st.lists(names)).map(lambda lists: list(itertools.chain.from_iterable(lists))[:max_calls])
    found: SearchStrategy[QueueProgram] = st.builds(write_queue_program, capacities, calls)
    return found
