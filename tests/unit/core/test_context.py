"""What entering and leaving a Context does beside its stacks; those are tested in tests/property."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from cupy_turbo.core.context import (
    Context,
    current_allocator,
    current_device,
    current_pinned_allocator,
    current_stream,
    pop_device,
    push_device,
)
from cupy_turbo.core.protocols import Device
from cupy_turbo.core.stream import Stream
from cupy_turbo.device import open_device


class Following:
    """A device that has an own current stream, as CuPy has: a stack that comes down in order only."""

    name, kind = "following", "cuda"

    def __init__(self) -> None:
        self.current: list[object] = []
        self.refuses = False

    def stream_handle(self, priority: int) -> Any:
        return type("Handle", (), {"device": self, "handle": 1, "priority": priority})()

    @contextmanager
    def activate(self, handle: object) -> Iterator[None]:
        if self.refuses:
            raise RuntimeError("refused")
        self.current.append(handle)
        yield
        assert self.current.pop() is handle


@pytest.fixture
def following() -> Following:
    return Following()


def make_stream(device: Following) -> Stream:
    return Stream.create(device=device)  # type: ignore[arg-type]


def test_the_devices_own_current_stream_follows(following: Following) -> None:
    outer, inner = make_stream(following), make_stream(following)
    with Context(stream=outer):
        with Context(stream=inner), Context():
            assert following.current == [outer._impl, inner._impl]
        assert following.current == [outer._impl]
    assert following.current == []


def test_it_follows_when_an_exception_passes(following: Following) -> None:
    with pytest.raises(KeyError), Context(stream=make_stream(following)):
        raise KeyError
    assert following.current == []


def test_left_out_of_order_it_is_never_the_stream_that_was_left(following: Following) -> None:
    outer, inner = Context(stream=make_stream(following)), Context(stream=make_stream(following))
    outer.__enter__()
    inner.__enter__()
    outer.__exit__(None, None, None)
    assert current_stream() == inner.stream
    assert following.current[-1] is inner.stream._impl
    inner.__exit__(None, None, None)
    assert following.current == []
    with pytest.raises(ValueError, match="no current stream"):
        current_stream()


def test_left_early_it_is_not_seen_below_one_that_masks_nothing(device: Device) -> None:
    outer, inner = Context(stream=Stream.create(device=device), allocator=device.allocator), Context()
    outer.__enter__()
    with inner:
        outer.__exit__(None, None, None)
        for current in (current_stream, current_allocator):
            with pytest.raises(ValueError, match="on this thread"):
                current()


def test_a_context_that_cannot_be_entered_leaves_nothing_behind(following: Following) -> None:
    context = Context(stream=make_stream(following))
    following.refuses = True
    with pytest.raises(RuntimeError, match="refused"):
        context.__enter__()
    with pytest.raises(ValueError, match="no current stream"):
        current_stream()


def test_a_context_changed_inside_pops_what_it_pushed(device: Device) -> None:
    stream = Stream.create(device=device)
    context = Context(stream=stream)
    with context:
        context.stream = Stream()
        assert current_stream() == stream
    with pytest.raises(ValueError, match="no current stream"):
        current_stream()


def test_allocators_of_a_device(device: Device) -> None:
    with Context(allocator=device.allocator, pinned=device.pinned_allocator):
        assert current_allocator().allocate((2, 3), "float32").shape == (2, 3)
        assert current_pinned_allocator().allocate(5, "int8").nbytes == 5


def test_nothing_is_kept_alive_after_leaving() -> None:
    device = open_device("host")
    context = Context(stream=Stream.create(device=device))
    with context:
        pass
    handle = weakref.ref(context.stream._impl)
    del context
    gc.collect()
    assert handle() is None


@pytest.mark.parametrize("current", [current_stream, current_allocator, current_pinned_allocator, current_device])
def test_an_empty_stack_raises(current: Any) -> None:
    with pytest.raises(ValueError, match="on this thread"):
        current()


def test_devices_nest_and_survive_exceptions(device: Device) -> None:
    other = open_device("host")

    def fail_inside() -> None:
        with other, device, other:
            assert current_device() is other
            raise KeyError

    with device:
        with pytest.raises(KeyError):
            fail_inside()
        assert current_device() is device
    with pytest.raises(ValueError, match="no current device"):
        current_device()


def test_leaving_a_device_closes_nothing(device: Device) -> None:
    with device:
        pass
    assert Stream.create(device=device)


def test_popping_a_device_that_was_not_pushed(device: Device) -> None:
    other = open_device("host")
    push_device(device)
    with pytest.raises(RuntimeError, match="did not enter it"):
        pop_device(other)
    assert current_device() is device
    pop_device(device)


def test_repr_says_what_it_has(device: Device) -> None:
    stream = Stream.create(device=device)
    assert repr(Context(stream=stream)) == f"Context(stream={stream!r}, allocator=None, pinned=None)"
