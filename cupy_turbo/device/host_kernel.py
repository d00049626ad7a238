"""Launching a kernel on the host device: arguments into 8-byte slots, and a failed launch into a Python error."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cupy_turbo.core import sanitizing
from cupy_turbo.core.errors import KernelError
from cupy_turbo.core.protocols import LaunchSize
from cupy_turbo.device.host_array import HostArray
from cupy_turbo.device.host_compiler import HostObject, LaunchReport, LaunchRequest, load_runtime
from cupy_turbo.device.host_schedule import AddressRange, Operation
from cupy_turbo.device.launch_size import block_extent, grid_extent
from cupy_turbo.device.queued_work import kernel_work
from cupy_turbo.device.signature import Parameter, Signature

if TYPE_CHECKING:
    from cupy_turbo.core.stream import Stream
    from cupy_turbo.device.host import HostDevice

MAX_SHARED_BYTES = 227 << 10
"""Of one block, static and dynamic together: what the largest GPU has."""

# `struct` codes by dtype.str without its byte order.
_FORMATS = {
    "i1": "b", "i2": "h", "i4": "i", "i8": "q", "u1": "B", "u2": "H", "u4": "I", "u8": "Q",
    "f2": "e", "f4": "f", "f8": "d", "b1": "?",
}  # fmt: skip


def _slot_format(parameter: Parameter) -> str:
    """`struct` format of one 8-byte slot."""
    if parameter.kind == "pointer":
        return "Q"
    assert parameter.dtype is not None
    code = _FORMATS.get(parameter.dtype.str[1:])
    if code is None:
        raise ValueError(f"parameter {parameter} cannot be passed by value")
    return f"{code}{8 - parameter.dtype.itemsize}x"


class HostKernel:
    """A compiled kernel of the host device.

    Parameters
    ----------
    device : HostDevice
        Owner.
    signature : Signature
        Parsed from the `.cu` file.
    code : HostObject
        The loaded object.
    """

    def __init__(self, device: HostDevice, signature: Signature, code: HostObject) -> None:
        self.device = device
        self.signature = signature
        self._code = code
        self._slots = struct.Struct("<" + "".join(_slot_format(parameter) for parameter in signature.parameters))

    @property
    def name(self) -> str:
        """Name of the file and of the entry in it."""
        return self.signature.name

    def __call__(
        self, grid: LaunchSize, block: LaunchSize, args: Sequence[object], *, shared_bytes: int = 0, stream: Stream
    ) -> None:
        """Queue one launch; see `core.protocols.Kernel`."""
        grid, block = grid_extent(self.name, grid), block_extent(self.name, block)
        self._check_shared(shared_bytes)
        arguments = self.signature.convert(args)
        target = self.device.stream_of(stream, self.name)
        reads: list[AddressRange] = []
        writes: list[AddressRange] = []
        values: list[object] = []
        for parameter, argument in zip(self.signature.parameters, arguments, strict=True):
            if isinstance(argument, HostArray):
                if argument.device is not self.device:
                    raise ValueError(f"{self.name}: {parameter} lives on another device, {argument.device.name}")
                (reads if parameter.is_const else writes).append(argument.address_range)
                values.append(argument.pointer)
            else:
                values.append(0 if argument is None else argument)
        if 0 in grid:
            return
        request = self._request(grid, block, shared_bytes)
        launch = _Launch(self, request, self._slots.pack(*values), arguments)
        operation = Operation(self.name, launch, reads=reads, writes=writes)
        if sanitizing.watch is not None or target.capture is not None:
            target.note(operation, kernel_work(self.signature, arguments))
        self.device.schedule.enqueue(target, [operation])

    def _check_shared(self, shared_bytes: int) -> None:
        wanted = self._code.static_bytes + shared_bytes
        if shared_bytes < 0 or wanted > MAX_SHARED_BYTES:
            raise ValueError(
                f"{self.name}: shared_bytes {shared_bytes} with {self._code.static_bytes} static bytes exceeds the "
                f"{MAX_SHARED_BYTES} of a block"
            )

    def _request(self, grid: tuple[int, ...], block: tuple[int, ...], shared_bytes: int) -> LaunchRequest:
        code = self._code
        return LaunchRequest(
            code.entry,
            code.static_place,
            code.static_bytes,
            0,  # of the order: chosen when the launch runs
            grid,
            block,
            shared_bytes,
            self.device.num_processors,
        )

    def __repr__(self) -> str:
        return f"HostKernel({self.name}({', '.join(map(str, self.signature.parameters))}))"


class _Launch:
    """A launch with everything converted; calling it runs the grid. Holds its operands."""

    __slots__ = ("_arguments", "_kernel", "_request", "_slots")

    def __init__(self, kernel: HostKernel, request: LaunchRequest, slots: bytes, arguments: Sequence[object]) -> None:
        self._kernel, self._request, self._slots, self._arguments = kernel, request, slots, arguments

    def __call__(self) -> None:
        self._request.seed = self._kernel.device.choose_launch_seed()
        report = LaunchReport()
        if load_runtime().turbo_launch(self._request, self._slots, report):
            block, thread = tuple(report.block), tuple(report.thread)
            reason = report.reason.decode()
            name = self._kernel.name
            raise KernelError(
                f"{name}: thread {thread} of block {block} {reason}", kernel=name, block=block, thread=thread
            )
