"""`check_stream_device`: what a device must do for `Stream`, `Event` and graphs to keep their promises on it."""

from __future__ import annotations

from cupy_turbo.core.protocols import Device
from cupy_turbo.testing import laws_of_lifetime, laws_of_order
from cupy_turbo.testing.conformance import check_laws, search
from cupy_turbo.testing.stream_bench import Bench
from cupy_turbo.testing.stream_program import StreamProgram
from cupy_turbo.testing.threads import PATIENCE


def check_stream_device(device: Device, *, patience: float = PATIENCE, max_examples: int = 50) -> None:
    """Hold a device against the laws of streams, events and graphs.

    Parameters
    ----------
    device : Device
        Of its verbs `empty`, `pinned`, `stream_handle`, `event_handle`, `copy`, `fill`, `upload`, `fetch`, `capture`
        and `synchronize` are used, and its `kind`.
    patience : float, seconds
        After which an event that is polled counts as lost.
    max_examples : int
        Random programs to try, >= 1.

    Raises
    ------
    ConformanceError
        Names the first law that is broken.

    Notes
    -----
    A missing wait shows only if the device runs things out of order. The host device with its policy ``random`` does;
    a GPU is given enough work to be behind. Needs the extra ``test``.

    Examples
    --------
    >>> from cupy_turbo import open_device
    >>> check_stream_device(open_device("host", policy="random"), max_examples=5)
    """
    check_laws(repr(device), _LAWS, Bench(device, patience, max_examples))


def _programs(bench: Bench) -> None:
    from cupy_turbo.testing.strategies import stream_programs

    def test(program: StreamProgram) -> None:
        program.check(bench.device)

    search(test, bench.max_examples, program=stream_programs())


_LAWS = {
    **laws_of_order.LAWS,
    **laws_of_lifetime.LAWS,
    "a program whose accesses are ordered gives the bytes of its calls run one by one": _programs,
}
