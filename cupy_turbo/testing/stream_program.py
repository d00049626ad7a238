"""A program for a device that is its own source text: what runs is what a failure prints."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cupy_turbo.core.protocols import Device

BUFFER_BYTES = 64
DEVICE_BUFFERS, PINNED_BUFFERS = ("d0", "d1", "d2"), ("p0", "p1")
BUFFERS = (*DEVICE_BUFFERS, *PINNED_BUFFERS)
"""Names of the buffers, of which number `i` holds byte `i` at first."""

Outcome = dict[str, set[int]]
"""For each buffer that a program uses, the bytes in it after the last call has run."""

# Where the names that a statement may use come from, by what tells that it does.
_HOMES = {
    " copy(s": ("copy", "copy"),
    "suppress(": ("contextlib", "suppress"),
    "Event.": ("cupy_turbo", "Event"),
    "Stream.": ("cupy_turbo", "Stream"),
    "open_device": ("cupy_turbo", "open_device"),
    "gather_rows(": ("cupy_turbo.ops.gather_rows", "gather_rows"),
    "RecordedPolicy": ("cupy_turbo.testing", "RecordedPolicy"),
    "wait_until": ("cupy_turbo.testing", "wait_until"),
}


class ProgramError(AssertionError):
    """A program did not end as it must; the message holds it as a script.

    Parameters
    ----------
    message : str
        What went wrong, and the script.
    program : StreamProgram or QueueProgram
        What ran.

    Examples
    --------
    >>> ProgramError("d0 holds 1", StreamProgram(())).program
    StreamProgram(calls=(), expected=None)
    """

    def __init__(self, message: str, program: Any) -> None:
        super().__init__(message)
        self.program = program


@dataclass(frozen=True)
class Work:
    """One operation: set every byte of buffer `target` to `byte`, or give it the bytes of buffer `source`.

    Parameters
    ----------
    target, source : str
        Names of buffers.
    byte : int
        0 to 255.
    by_kernel : bool
        Let a kernel move the bytes, between buffers in device memory.
    """

    target: str
    source: str | None = None
    byte: int = 0
    by_kernel: bool = False

    def call(self, stream: str) -> str:
        """Write it as a call."""
        if self.source is None:
            return f"device.fill({self.target}, {self.byte}, stream={stream})"
        if self.by_kernel:
            rows = [f"{name}.view(np.float32).reshape(4, 4)" for name in (self.target, self.source)]
            return f"gather_rows({rows[0]}, {rows[1]}, rows, stream={stream})"
        return f"device.copy({self.target}, {self.source}, stream={stream})"


@dataclass(frozen=True)
class StreamProgram:
    """Calls on a device, as statements of Python that use nothing but the public API.

    Parameters
    ----------
    calls : tuple of str
        Statements. They know ``device``, the buffers ``d0`` to ``d2`` in device memory, ``p0`` and ``p1`` in pinned
        memory, and what they make themselves.
    expected : mapping, optional
        The byte that each buffer must hold at the end whatever the schedule. None if that depends on it: accesses race.

    Examples
    --------
    >>> program = StreamProgram(
    ...     ("s0 = Stream.create(device=device)", "device.fill(d0, 7, stream=s0)"), expected={"d0": 7}
    ... )
    >>> from cupy_turbo import open_device
    >>> program.check(open_device("host"))
    {'d0': {7}}
    >>> print(program.as_python())
    import numpy as np
    from cupy_turbo import Stream, open_device
    <BLANKLINE>
    device = open_device("host", workers=1)
    d0 = device.upload(np.full(64, 0, np.uint8))
    s0 = Stream.create(device=device)
    device.fill(d0, 7, stream=s0)
    outcome = {"d0": set(device.fetch(d0).tolist())}
    assert outcome == {'d0': {7}}, outcome
    """

    calls: tuple[str, ...]
    expected: Mapping[str, int] | None = None

    def __len__(self) -> int:
        return len(self.calls)

    @property
    def buffers(self) -> list[str]:
        """Names of the buffers that the calls mention."""
        words = set(re.findall(r"\w+", "\n".join(self.calls)))
        return [name for name in BUFFERS if name in words]

    def run(self, device: Device) -> Outcome:
        """Make the calls on a device and wait for it.

        Returns
        -------
        dict
            The bytes in each buffer.
        """
        body = self._body()
        scope: dict[str, Any] = {"device": device}
        exec(compile("\n".join([*_imports(body), *body]), "<stream program>", "exec"), scope)
        outcome: Outcome = scope["outcome"]
        return outcome

    def check(self, device: Device, policy: object = None) -> Outcome:
        """Run, and compare with what must come of it.

        Parameters
        ----------
        device : Device
        policy : RecordedPolicy or DrawnPolicy, optional
            The device's policy, for the script.

        Raises
        ------
        ProgramError
            If a call raised, or a buffer holds something else; the message is a script that repeats it.
        """
        try:
            outcome = self.run(device)
            if self.expected is not None:
                wrong = {name: held for name, held in outcome.items() if held != {self.expected[name]}}
                assert not wrong, f"must hold {self._expected_outcome()}, found {wrong}"
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise ProgramError(f"{reason}\n\n{self.as_python(policy)}", self) from error
        return outcome

    def as_python(self, policy: object = None) -> str:
        """Write a script that does the same on a new host device, and leaves the outcome in ``outcome``.

        Parameters
        ----------
        policy : object, optional
            Whose ``repr`` is the expression that makes it: `RecordedPolicy`, or `DrawnPolicy` after it was used.

        Returns
        -------
        str
        """
        chosen = "" if policy is None else f", policy={policy!r}"
        lines = [f'device = open_device("host"{chosen}, workers=1)', *self._body()]
        if self.expected is not None:
            lines.append(f"assert outcome == {self._expected_outcome()}, outcome")
        return "\n".join([*_imports(lines), "", *lines])

    def _expected_outcome(self) -> Outcome:
        assert self.expected is not None
        return {name: {self.expected[name]} for name in self.buffers}

    def _body(self) -> list[str]:
        prepared = []
        for number, name in enumerate(BUFFERS):
            if name in self.buffers and name in DEVICE_BUFFERS:
                prepared.append(f"{name} = device.upload(np.full({BUFFER_BYTES}, {number}, np.uint8))")
            elif name in self.buffers:
                prepared += [f"{name} = device.pinned({BUFFER_BYTES}, np.uint8)", f"{name}[:] = {number}"]
        if any("gather_rows(" in call for call in self.calls):
            prepared.append("rows = device.upload(np.array([2, 0, 3, 1], np.int32))")
            prepared.append('device.kernel("gather_rows", TYPE="float")  # before a capture, which must not compile')
        fetched = [name if name in PINNED_BUFFERS else f"device.fetch({name})" for name in self.buffers]
        pairs = [f'"{name}": set({value}.tolist())' for name, value in zip(self.buffers, fetched, strict=True)]
        waits = ["device.synchronize()"] if any(name in PINNED_BUFFERS for name in self.buffers) else []
        return [*prepared, *self.calls, *waits, f"outcome = {{{', '.join(pairs)}}}"]


def _imports(lines: list[str]) -> list[str]:
    text = "\n".join(lines)
    used: dict[str, list[str]] = {}
    for word, (module, name) in _HOMES.items():
        if word in text:
            used.setdefault(module, []).append(name)
    plain = ["import numpy as np"] if "np." in text else []
    return [*plain, *(f"from {module} import {', '.join(names)}" for module, names in used.items())]
