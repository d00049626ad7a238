"""Laws of Context: a stack for each thread, popped exactly, where null entries mask nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from cupy_turbo.core.context import Context, current_allocator, current_pinned_allocator, current_stream
from cupy_turbo.core.protocols import Device
from cupy_turbo.core.stream import Stream
from cupy_turbo.testing.examples import examples
from cupy_turbo.testing.threads import Caller

KINDS: dict[str, Callable[[], Any]] = {
    "stream": current_stream,
    "allocator": current_allocator,
    "pinned": current_pinned_allocator,
}


class Named:
    """An allocator to be told from others; nobody allocates here."""

    def allocate(self, shape: object, dtype: object) -> Any:
        raise AssertionError("nothing is allocated")


def seen_now() -> dict[str, Any]:
    """What this thread's context gives, None where it raises."""
    found = {}
    for kind, current in KINDS.items():
        try:
            found[kind] = current()
        except ValueError:
            found[kind] = None
    return found


class Nesting(RuleBasedStateMachine):
    """Contexts entered and left in any order, the same ones again and again."""

    device: Device

    @initialize(given=st.lists(st.sets(st.sampled_from(sorted(KINDS))), min_size=2, max_size=4))
    def make(self, given: list[set[str]]) -> None:
        makers = {"stream": lambda: Stream.create(device=type(self).device), "allocator": Named, "pinned": Named}
        self.entries = [{kind: makers[kind]() for kind in sorted(kinds)} for kinds in given]
        self.contexts = [Context(**entries) for entries in self.entries]
        self.entered: list[int] = []

    @rule(choice=st.integers(0, 3))
    def enter(self, choice: int) -> None:
        number = choice % len(self.contexts)
        assert self.contexts[number].__enter__() is self.contexts[number]
        self.entered.append(number)

    @precondition(lambda self: self.entered)
    @rule(failing=st.booleans())
    def leave_innermost(self, failing: bool) -> None:
        error = (ValueError, ValueError("inside"), None) if failing else (None, None, None)
        assert not self.contexts[self.entered.pop()].__exit__(*error), "an exception passes through"

    @precondition(lambda self: self.entered)
    @rule(choice=st.integers(0, 9))
    def leave_any(self, choice: int) -> None:
        number = self.entered[choice % len(self.entered)]
        self.contexts[number].__exit__(None, None, None)
        innermost = len(self.entered) - 1 - self.entered[::-1].index(number)
        del self.entered[innermost]

    @rule(choice=st.integers(0, 3))
    def leave_what_was_not_entered(self, choice: int) -> None:
        number = choice % len(self.contexts)
        if number not in self.entered:
            with pytest.raises(RuntimeError, match="did not enter it"):
                self.contexts[number].__exit__(None, None, None)

    @invariant()
    def innermost_given_entry_is_current(self) -> None:
        if not hasattr(self, "entered"):
            return
        expected: dict[str, Any] = dict.fromkeys(KINDS)
        for number in self.entered:
            expected |= self.entries[number]
        assert seen_now() == expected

    @rule()
    def other_threads_see_nothing(self) -> None:
        assert Caller(seen_now).result() == dict.fromkeys(KINDS)

    def teardown(self) -> None:
        while getattr(self, "entered", None):
            self.leave_innermost(failing=False)
        assert seen_now() == dict.fromkeys(KINDS)


def test_every_nesting(device: Device) -> None:
    machine = type("Nesting", (Nesting,), {"device": device})
    run_state_machine_as_test(machine, settings=settings(max_examples=examples(80), stateful_step_count=30))


def test_one_context_on_two_threads(device: Device) -> None:
    context = Context(stream=Stream.create(device=device))

    def enter_twice() -> tuple[Stream, Stream]:
        with context, context:
            inner = current_stream()
        with context:
            return inner, current_stream()

    with context:
        assert Caller(enter_twice).result() == (context.stream, context.stream)
        assert current_stream() == context.stream
