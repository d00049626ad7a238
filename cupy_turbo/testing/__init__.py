"""What this project tests itself with, for your tests too.

Strategies for programs (they need the extra ``test``), policies that search schedules, suites that any queue or device
can be held against, faults on purpose, and an oracle of every operation in NumPy float64.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cupy_turbo.testing.conformance import ConformanceError
    from cupy_turbo.testing.conformance_queue import check_queue
    from cupy_turbo.testing.conformance_stream import check_stream_device
    from cupy_turbo.testing.faults import Fault, Injection, inject
    from cupy_turbo.testing.policies import DrawnPolicy, RecordedPolicy
    from cupy_turbo.testing.queue_program import QueueProgram, outcome_of
    from cupy_turbo.testing.strategies import drawn_policies, queue_programs, stream_programs
    from cupy_turbo.testing.stream_program import ProgramError, StreamProgram
    from cupy_turbo.testing.threads import Caller, wait_until

_HOMES = {
    "Caller": "threads",
    "ConformanceError": "conformance",
    "DrawnPolicy": "policies",
    "Fault": "faults",
    "Injection": "faults",
    "ProgramError": "stream_program",
    "QueueProgram": "queue_program",
    "RecordedPolicy": "policies",
    "StreamProgram": "stream_program",
    "check_queue": "conformance_queue",
    "check_stream_device": "conformance_stream",
    "drawn_policies": "strategies",
    "inject": "faults",
    "outcome_of": "queue_program",
    "queue_programs": "strategies",
    "stream_programs": "strategies",
    "wait_until": "threads",
}

__all__ = [
    "Caller",
    "ConformanceError",
    "DrawnPolicy",
    "Fault",
    "Injection",
    "ProgramError",
    "QueueProgram",
    "RecordedPolicy",
    "StreamProgram",
    "check_queue",
    "check_stream_device",
    "drawn_policies",
    "inject",
    "outcome_of",
    "queue_programs",
    "stream_programs",
    "wait_until",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
