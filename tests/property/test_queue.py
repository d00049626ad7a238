"""Laws of Queue: FIFO, nothing lost or doubled, close drains, abort hands back, and every sleeper wakes."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)

from cupy_turbo.core.errors import QueueClosed
from cupy_turbo.core.queue import Queue
from cupy_turbo.testing import Caller, QueueProgram, queue_programs, wait_until
from cupy_turbo.testing.examples import examples

capacities = st.one_of(st.none(), st.integers(1, 3))


@settings(max_examples=examples(200))
@given(program=queue_programs())
def test_programs(program: QueueProgram) -> None:
    """Alone, a queue does what a deque with a lid does."""
    program.check(Queue)


@settings(max_examples=examples(20))
@given(program=queue_programs())
def test_a_program_is_the_script_that_it_prints(program: QueueProgram) -> None:
    exec(program.as_python(), {})


class Sleepers(RuleBasedStateMachine):
    """Each call has a thread of its own and may block; the model knows how many must be asleep after each."""

    @initialize(capacity=capacities)
    def open(self, capacity: int | None) -> None:
        self.queue: Queue[int] = Queue(capacity)
        self.poppers: list[Caller] = []
        self.pushers: dict[int, Caller] = {}
        self.length = self.asleep_popping = self.asleep_pushing = 0
        self.closed = False
        self.handed_back: list[int] = []
        self.next_item = 0

    def settle(self) -> None:
        """Wait until exactly those calls are asleep that must be."""

        def is_settled() -> bool:
            seen = self.queue.statistics()
            alive = sum(not call.done for call in [*self.poppers, *self.pushers.values()])
            return (
                alive == seen.poppers_waiting + seen.pushers_waiting
                and seen.poppers_waiting == self.asleep_popping
                and seen.pushers_waiting == self.asleep_pushing
                and seen.length == self.length
            )

        wait_until(is_settled)
        seen = self.queue.statistics()
        assert seen.pushed == seen.popped + seen.aborted + seen.length
        assert (len(self.queue), self.queue.closed) == (seen.length, seen.closed) == (self.length, self.closed)

    @rule()
    def pop(self) -> None:
        self.poppers.append(Caller(self.queue.pop))
        if self.asleep_pushing:
            self.asleep_pushing -= 1  # its item takes the place that became free
        elif self.length:
            self.length -= 1
        elif not self.closed:
            self.asleep_popping += 1
        self.settle()

    @rule()
    def push(self) -> None:
        item, self.next_item = self.next_item, self.next_item + 1
        self.pushers[item] = Caller(lambda: self.queue.push(item))
        if self.closed:
            pass
        elif self.asleep_popping:
            self.asleep_popping -= 1
        elif self.queue.capacity is None or self.length < self.queue.capacity:
            self.length += 1
        else:
            self.asleep_pushing += 1
        self.settle()

    @rule(abort=st.booleans())
    def end(self, abort: bool) -> None:
        if abort:
            self.handed_back += self.queue.abort()
            self.length = 0
        else:
            self.queue.close()
        assert self.queue.closed
        self.closed = True
        self.asleep_popping = self.asleep_pushing = 0
        self.settle()

    def teardown(self) -> None:
        if not hasattr(self, "queue"):
            return
        if not self.closed:
            self.end(abort=False)
        remaining = list(self.queue)
        taken, refused = [], []
        for item, pusher in self.pushers.items():
            (refused if isinstance(pusher.outcome, QueueClosed) else taken).append(item)
        popped = [call.outcome for call in self.poppers if not isinstance(call.outcome, QueueClosed)]
        # Nothing is lost, nothing is doubled, and a refused item went nowhere.
        assert self.queue.statistics().pushed == len(taken)
        assert Counter(popped + remaining + self.handed_back) == Counter(taken)
        assert sorted(taken + refused) == list(range(self.next_item))


def test_every_order_of_sleepers() -> None:
    run_state_machine_as_test(Sleepers, settings=settings(max_examples=examples(60), stateful_step_count=30))


@settings(max_examples=examples(40))
@given(
    producers=st.lists(st.integers(0, 60), min_size=1, max_size=4),
    num_consumers=st.integers(1, 4),
    capacity=capacities,
    keep=st.one_of(st.none(), st.integers(0, 50)),
)
def test_crowd(producers: list[int], num_consumers: int, capacity: int | None, keep: int | None) -> None:
    """However threads interleave, each producer's items keep their order; an abort in between loses none."""
    queue: Queue[tuple[int, int]] = Queue(capacity)
    handed_back: list[tuple[int, int]] = []

    def produce(producer: int, count: int) -> int:
        for number in range(count):
            try:
                queue.push((producer, number))
            except QueueClosed:
                return number
        return count

    consumers = [Caller(lambda: list(queue)) for _ in range(num_consumers)]
    calls = [Caller(lambda p=p, c=c: produce(p, c)) for p, c in enumerate(producers)]
    if keep is not None:  # abort somewhere in the middle, if the crowd gets that far
        wait_until(lambda: queue.statistics().popped >= keep or all(call.done for call in calls))
        handed_back = queue.abort()
    pushed = [call.result() for call in calls]
    queue.close()
    popped = [consumer.result() for consumer in consumers]

    expected = Counter((p, number) for p, count in enumerate(pushed) for number in range(count))
    assert Counter([*handed_back, *(item for items in popped for item in items)]) == expected
    for items in [*popped, handed_back]:
        for p in range(len(producers)):
            numbers = [number for producer, number in items if producer == p]
            assert numbers == sorted(numbers)


@pytest.mark.parametrize("end", ["close", "abort"])
@pytest.mark.parametrize("num_waiting", [1, 3])
def test_end_wakes_all_poppers(end: str, num_waiting: int) -> None:
    queue: Queue[int] = Queue()
    calls = [Caller(queue.pop) for _ in range(num_waiting)]
    wait_until(lambda: queue.statistics().poppers_waiting == num_waiting)
    getattr(queue, end)()
    for call in calls:
        with pytest.raises(QueueClosed):
            call.result()


@pytest.mark.parametrize("end", ["close", "abort"])
def test_end_wakes_all_pushers_and_takes_none_of_their_items(end: str) -> None:
    queue: Queue[int] = Queue(capacity=1)
    queue.push(0)
    calls = [Caller(lambda item=item: queue.push(item)) for item in (1, 2, 3)]
    wait_until(lambda: queue.statistics().pushers_waiting == 3)
    getattr(queue, end)()
    for call in calls:
        with pytest.raises(QueueClosed):
            call.result()
    assert queue.statistics().pushed == 1
