"""What each call of Stream and Event does and refuses; the laws of ordering are in tests/property."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from cupy_turbo.core.protocols import Device
from cupy_turbo.core.stream import Event, Stream
from cupy_turbo.device import open_device


@pytest.fixture
def other_device() -> Iterator[Device]:
    opened = open_device("host")
    yield opened
    opened.close()


@pytest.mark.parametrize(
    ("name", "use"),
    [
        ("Stream.sync()", lambda device: Stream().sync()),
        ("Stream.wait()", lambda device: Stream().wait(Event.create(device=device))),
        ("Stream.device", lambda device: Stream().device),
        ("Stream.handle", lambda device: Stream().handle),
        ("Stream.priority", lambda device: Stream().priority),
        ("Stream.__cuda_stream__()", lambda device: Stream().__cuda_stream__()),
        ("Event.record()", lambda device: Event().record(Stream.create(device=device))),
        ("Event.sync()", lambda device: Event().sync()),
        ("Event.query()", lambda device: Event().query()),
        ("Event.elapsed_since()", lambda device: Event().elapsed_since(Event.create(True, device=device))),
        ("Event.device", lambda device: Event().device),
        ("Event.handle", lambda device: Event().handle),
        ("Event.timing", lambda device: Event().timing),
    ],
)
def test_use_of_a_null_names_the_call(name: str, use: Callable[[Device], object], device: Device) -> None:
    noun = name.partition(".")[0]
    with pytest.raises(ValueError, match=rf"^{re.escape(name)} on a null {noun}; make one with {noun}.create\(\)$"):
        use(device)


@pytest.mark.parametrize(
    ("message", "use"),
    [
        (r"Stream.wait\(\) got a null Event", lambda device: Stream.create(device=device).wait(Event())),
        (r"Event.record\(\) got a null Stream", lambda device: Event.create(device=device).record(Stream())),
        (
            r"Event.elapsed_since\(\) got a null Event",
            lambda device: Event.create(True, device=device).elapsed_since(Event()),
        ),
        ("null Stream", lambda device: device.fill(device.empty(1, np.uint8), 0, stream=Stream())),
        (
            "null Stream",
            lambda device: device.copy(device.empty(1, np.uint8), device.empty(1, np.uint8), stream=Stream()),
        ),
        ("null Stream", lambda device: device.capture(Stream()).__enter__()),
    ],
)
def test_a_null_argument_names_the_call(message: str, use: Callable[[Device], object], device: Device) -> None:
    with pytest.raises(ValueError, match=message):
        use(device)


@pytest.mark.parametrize("wrong", [None, 0, "stream", object()])
def test_an_argument_of_another_type_is_named(wrong: object, device: Device) -> None:
    stream, event = Stream.create(device=device), Event.create(True, device=device)
    kind = type(wrong).__name__
    with pytest.raises(TypeError, match=rf"^Stream.wait\(\) takes an Event, got {kind}$"):
        stream.wait(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=rf"^Event.record\(\) takes a Stream, got {kind}$"):
        event.record(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="takes an Event"):
        event.elapsed_since(stream)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [Stream, Event])
class TestBoth:
    """Streams and events own their handles in the same way."""

    def test_null_and_real(self, kind: type[Stream] | type[Event], device: Device) -> None:
        real = kind.create(device=device)
        assert (bool(real), bool(kind())) == (True, False)
        assert real.device is device
        assert isinstance(real.handle, int)
        assert real.handle != 0

    @pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy])
    def test_copies_share(self, kind: type[Stream] | type[Event], duplicate: Callable, device: Device) -> None:
        real = kind.create(device=device)
        shared = duplicate(real)
        assert shared is not real
        assert shared == real
        assert hash(shared) == hash(real)
        assert shared.handle == real.handle
        assert duplicate(kind()) == kind()
        assert duplicate([real, real])[0] == real

    def test_equality_is_identity_of_the_handle(self, kind: type[Stream] | type[Event], device: Device) -> None:
        one, other = kind.create(device=device), kind.create(device=device)
        assert one != other
        assert one != kind()
        assert kind() == kind()
        assert len({one, copy.copy(one), other, kind(), kind()}) == 3
        assert one != one.handle
        assert kind() != None  # noqa: E711 - null is not None

    def test_pickling_is_refused(self, kind: type[Stream] | type[Event], device: Device) -> None:
        with pytest.raises(TypeError, match=f"{kind.__name__} cannot be pickled"):
            pickle.dumps(kind.create(device=device))

    def test_no_device_to_create_on(self, kind: type[Stream] | type[Event]) -> None:
        with pytest.raises(ValueError, match=r"use `with device:` or pass device="):
            kind.create()

    def test_device_of_the_with(self, kind: type[Stream] | type[Event], device: Device, other_device: Device) -> None:
        with device:
            assert kind.create().device is device
            with other_device:
                assert kind.create().device is other_device
            assert kind.create(device=other_device).device is other_device
            assert kind.create().device is device


def test_a_stream_is_not_an_event() -> None:
    assert Stream() != Event()
    assert len({Stream(), Event()}) == 2


def test_repr_is_one_honest_line(device: Device) -> None:
    stream, event = Stream.create(-1, device=device), Event.create(True, device=device)
    assert repr(stream) == f"Stream({device.name}, handle={stream.handle:#x}, priority=-1)"
    assert repr(event) == f"Event({device.name}, handle={event.handle:#x}, timing=True)"
    assert (repr(Stream()), repr(Event())) == ("Stream()", "Event()")


def test_cuda_stream_protocol(device: Device) -> None:
    stream = Stream.create(device=device)
    if device.kind == "cuda":
        assert stream.__cuda_stream__() == (0, stream.handle)
        return
    # Handles 1 and 2 are CUDA's legacy and per-thread default streams.
    with pytest.raises(TypeError, match=r"^a Stream of host is not a CUDA stream: create it on a cuda device$"):
        stream.__cuda_stream__()


def test_a_never_recorded_event_holds_nothing_back(device: Device) -> None:
    stream, event = Stream.create(device=device), Event.create(device=device)
    stream.wait(event)
    event.sync()
    stream.sync()
    assert event.query()


def test_streams_and_events_of_different_devices(device: Device, other_device: Device) -> None:
    stream, event = Stream.create(device=device), Event.create(device=other_device)
    with pytest.raises(ValueError, match=r"^Stream.wait\(\): .*on another device"):
        stream.wait(event)
    with pytest.raises(ValueError, match=r"^Event.record\(\): .*on another device"):
        event.record(stream)


class TestElapsed:
    """Time between events is measured where both can measure it, and refused by name elsewhere."""

    def test_is_in_milliseconds_and_signed(self, device: Device) -> None:
        stream, start, stop = Stream.create(device=device), *(Event.create(True, device=device) for _ in range(2))
        array = device.empty(1 << 20, np.uint8)
        start.record(stream)
        device.fill(array, 1, stream=stream)
        stop.record(stream)
        stop.sync()
        elapsed = stop.elapsed_since(start)
        assert 0 < elapsed < 60_000
        assert start.elapsed_since(stop) == -elapsed
        assert start.elapsed_since(start) == 0

    @pytest.mark.parametrize("timing", [(False, True), (True, False), (False, False)])
    def test_without_timing(self, timing: tuple[bool, bool], device: Device) -> None:
        stream = Stream.create(device=device)
        end, start = (Event.create(each, device=device) for each in timing)
        for event in (start, end):
            event.record(stream)
        stream.sync()
        with pytest.raises(ValueError, match=r"has no timing; make it with Event.create\(timing=True\)"):
            end.elapsed_since(start)

    def test_never_recorded(self, device: Device) -> None:
        stream, start, end = Stream.create(device=device), *(Event.create(True, device=device) for _ in range(2))
        start.record(stream)
        stream.sync()
        with pytest.raises(ValueError, match="never recorded"):
            end.elapsed_since(start)
        with pytest.raises(ValueError, match="never recorded"):
            start.elapsed_since(end)

    def test_not_yet_happened(self) -> None:
        device = open_device("host")  # where nothing runs before somebody waits
        stream, start, end = Stream.create(device=device), *(Event.create(True, device=device) for _ in range(2))
        start.record(stream)
        for _ in range(5):
            device.fill(device.empty(1, np.uint8), 1, stream=stream)
        end.record(stream)
        start.sync()
        with pytest.raises(ValueError, match=r"this event has not happened yet; call its sync\(\) first"):
            end.elapsed_since(start)


def test_every_thread_has_its_own_current_device(device: Device) -> None:
    from cupy_turbo.testing.threads import Caller

    with device:
        with pytest.raises(ValueError, match="no current device on this thread"):
            Caller(Stream.create).result()
        assert Stream.create().device is device
