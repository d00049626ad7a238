"""What a finding says: both operations, their streams, bytes and lines, and the wait that is missing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from cupy_turbo.core.errors import StreamRaceError
from cupy_turbo.device.race_detector import Access, Conflict, EventClock, Mark, Origin, RaceDetector, StreamClock
from cupy_turbo.device.source_line import describe


class Block(NamedTuple):
    """An allocation."""

    start: int
    stop: int
    kind: str
    """ "device", "pinned" or "host"."""
    origin: Origin | None


def race_error(conflict: Conflict, detector: RaceDetector, blocks: Iterable[Block]) -> StreamRaceError:
    """Describe two accesses that nothing orders."""
    earlier, later = conflict
    blocks = list(blocks)
    remedy = _remedy(detector, earlier, later[0].stream)
    message = "\n".join(
        [
            f"nothing orders {later[0].name} and {earlier[0].name} on the same memory: {_verbs(earlier, later)}",
            *_lines("this", later, earlier[1], blocks),
            *_lines("earlier", earlier, later[1], blocks),
            f"  missing  {remedy}",
        ]
    )
    return StreamRaceError(message, earlier=earlier[0].name, later=later[0].name, remedy=remedy)


def host_race_error(
    write: Mark, start: int, stop: int, origin: Origin | None, detector: RaceDetector, blocks: Iterable[Block]
) -> StreamRaceError:
    """Describe a host access to memory that a stream writes."""
    events = _behind(detector, write)
    remedy = f"{write[0].stream.label}.sync()" + (f", or {_event(events[0])}.sync()," if events else "")
    remedy += " before the host reads it"
    message = "\n".join(
        [
            f"the host uses memory that {write[0].name} on {write[0].stream.label} writes, and nobody waited for it",
            f"  this     bytes at {start:#x}, used at {describe(origin)}",
            *_lines("earlier", write, Access("", start, stop, False), list(blocks)),
            f"  missing  {remedy}",
        ]
    )
    return StreamRaceError(message, earlier=write[0].name, later="host", remedy=remedy)


def _verbs(earlier: Mark, later: Mark) -> str:
    first, second = ("writes" if mark[1].writes else "reads" for mark in (later, earlier))
    return f"the one {first} it, the other {second} it" if first != second else "both write it"


def _lines(title: str, mark: Mark, other: Access, blocks: list[Block]) -> list[str]:
    """Four facts of an operation: what, which bytes, which stream, which line."""
    operation, access = mark
    start, stop = max(access.start, other.start), min(access.stop, other.stop)
    what = f"{operation.name}{' (' + access.within + ')' if access.within else ''}"
    verb = "writes" if access.writes else "reads"
    shared = f"bytes {start - access.start} to {stop - access.start} of {access.label!r}"
    lines = [
        f"  {title:<8} {what} {verb} {shared}: {_place(start, stop, blocks)}",
        f"           queued on {operation.stream.label} at {describe(operation.origin)}",
    ]
    if access.origin is not None:
        lines.append(f"           captured at {describe(access.origin)}")
    return lines


def _place(start: int, stop: int, blocks: list[Block]) -> str:
    for block in blocks:
        if block.start <= start and stop <= block.stop:
            taken = f" taken at {describe(block.origin)}" if block.origin is not None else ""
            size = block.stop - block.start
            return f"bytes {start - block.start} to {stop - block.start} of {size} {block.kind} bytes{taken}"
    return f"addresses {start:#x} to {stop:#x}"


def _remedy(detector: RaceDetector, earlier: Mark, stream: StreamClock) -> str:
    """Name the wait: for an event that is there already if one stands behind the earlier operation."""
    events = _behind(detector, earlier)
    waited = next((event for event in events if stream.number in event.waits), None)
    if waited is not None:
        return (
            f"{stream.label}.wait({_event(waited)}) after that record: it waited at "
            f"{describe(waited.waits[stream.number][1])}, before it, and a wait sees earlier records only"
        )
    if events:
        return f"{stream.label}.wait({_event(events[0])}) before this operation"
    return (
        f"an event recorded on {earlier[0].stream.label} behind the earlier operation, and "
        f"{stream.label}.wait(event) before this operation"
    )


def _event(event: EventClock) -> str:
    return f"{event.label} [recorded at {describe(event.origin)}]"


def _behind(detector: RaceDetector, mark: Mark) -> list[EventClock]:
    """Events behind an operation, the one with the least else before it first."""
    return sorted(detector.events_behind(mark[0]), key=lambda event: sum((event.clock or {}).values()))
