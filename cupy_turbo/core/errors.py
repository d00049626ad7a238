"""What can go wrong, by name: one base class, and a second base from Python's own where people already catch it."""

from __future__ import annotations


class CupyTurboError(Exception):
    """Base of every error that this package raises on its own account.

    Examples
    --------
    >>> issubclass(QueueClosed, CupyTurboError) and issubclass(DeviceError, CupyTurboError)
    True
    """


class DeviceError(CupyTurboError, RuntimeError):
    """A device refused or failed at something.

    Examples
    --------
    >>> try:
    ...     raise CompileError("rms_norm.cu(12): error: expected a ';'")
    ... except DeviceError as error:
    ...     print(error)
    rms_norm.cu(12): error: expected a ';'
    """


class KernelError(DeviceError):
    """A launch was aborted; the process and the other launches live on.

    Parameters
    ----------
    message : str
        What happened.
    kernel : str or None
        Name of the kernel.
    block, thread : tuple of 3 int or None
        Where it happened, as (x, y, z).

    Examples
    --------
    >>> error = KernelError("rms_norm: divergent barrier", kernel="rms_norm", block=(3, 0, 0), thread=(32, 0, 0))
    >>> error.kernel, error.block, error.thread
    ('rms_norm', (3, 0, 0), (32, 0, 0))
    """

    def __init__(
        self,
        message: str,
        *,
        kernel: str | None = None,
        block: tuple[int, int, int] | None = None,
        thread: tuple[int, int, int] | None = None,
    ) -> None:
        super().__init__(message)
        self.kernel = kernel
        self.block = block
        self.thread = thread


class CompileError(DeviceError):
    """A kernel did not compile; the message holds the compiler's own.

    Examples
    --------
    >>> issubclass(CompileError, DeviceError)
    True
    """


class DeviceLostError(DeviceError):
    """A sticky CUDA error: nothing on this device works any more, and only a new process helps.

    Examples
    --------
    >>> issubclass(DeviceLostError, DeviceError)
    True
    """


class SanitizerError(DeviceError):
    """The stream sanitizer found a use of the device that goes well by luck only; nothing was queued for it.

    Examples
    --------
    >>> issubclass(StreamRaceError, SanitizerError) and issubclass(SanitizerError, DeviceError)
    True
    """


class StreamRaceError(SanitizerError):
    """Two operations use the same memory, one of them writes it, and nothing orders them.

    Parameters
    ----------
    message : str
        Both operations, with their streams, buffers and lines, and the wait that is missing.
    earlier, later : str
        Names of the two, in the order of queueing; `later` was refused.
    remedy : str
        The wait that would order them.

    Examples
    --------
    >>> error = StreamRaceError("…", earlier="copy", later="rms_norm", remedy="compute.wait(ready)")
    >>> error.earlier, error.later, error.remedy
    ('copy', 'rms_norm', 'compute.wait(ready)')
    """

    def __init__(self, message: str, *, earlier: str = "", later: str = "", remedy: str = "") -> None:
        super().__init__(message)
        self.earlier = earlier
        self.later = later
        self.remedy = remedy


class DeviceUnavailableError(DeviceError):
    """No GPU, driver or compiler to work with; the message is one sentence with the remedy.

    Examples
    --------
    >>> issubclass(DeviceUnavailableError, DeviceError)
    True
    """


class QueueClosed(CupyTurboError):  # noqa: N818 - an ending, not an error: it is how a loop over a queue stops
    """The queue takes no more items, or has no more to give.

    Examples
    --------
    >>> from cupy_turbo.core.queue import Queue
    >>> queue = Queue()
    >>> queue.close()
    >>> queue.push(1)
    Traceback (most recent call last):
    cupy_turbo.core.errors.QueueClosed: push() on a closed queue
    """


class QueueEmpty(CupyTurboError):  # noqa: N818 - named like the standard library's queue.Empty
    """Nothing to pop now, or nothing came in time; the queue is unchanged.

    Examples
    --------
    >>> from cupy_turbo.core.queue import Queue
    >>> Queue().try_pop()
    Traceback (most recent call last):
    cupy_turbo.core.errors.QueueEmpty: the queue is empty
    """


class QueueFull(CupyTurboError):  # noqa: N818 - named like the standard library's queue.Full
    """No room to push now, or none in time; the item was not taken.

    Examples
    --------
    >>> from cupy_turbo.core.queue import Queue
    >>> queue = Queue(capacity=1)
    >>> queue.push("first")
    >>> queue.try_push("second")
    Traceback (most recent call last):
    cupy_turbo.core.errors.QueueFull: the queue holds its capacity of 1
    """


class InvalidRequestError(CupyTurboError, ValueError):
    """A request that can never be served, refused before anything was allocated for it.

    Parameters
    ----------
    message : str
        The value, the limit and the remedy.
    parameter : str or None
        Name of the argument at fault.
    value : object
        What it was.

    Examples
    --------
    >>> error = InvalidRequestError("top_p must be in (0, 1], got 2", parameter="top_p", value=2)
    >>> error.parameter, error.value, isinstance(error, ValueError)
    ('top_p', 2, True)
    """

    def __init__(self, message: str, *, parameter: str | None = None, value: object = None) -> None:
        super().__init__(message)
        self.parameter = parameter
        self.value = value


class ContextLengthError(InvalidRequestError):
    """A prompt, or a prompt with what was asked for, is longer than the model's context.

    Examples
    --------
    >>> error = ContextLengthError("prompt has 9000 tokens, the limit is 8192", parameter="prompt", value=9000)
    >>> isinstance(error, InvalidRequestError)
    True
    """


class EngineDeadError(CupyTurboError, RuntimeError):
    """The engine was closed or its device died; it takes no more requests.

    Examples
    --------
    >>> issubclass(EngineDeadError, RuntimeError)
    True
    """


class RequestCancelled(CupyTurboError):  # noqa: N818 - somebody asked for it
    """A request ended because its caller, or the engine's `close`, cancelled it.

    Examples
    --------
    >>> issubclass(RequestCancelled, RequestFailedError)
    False
    """


class RequestFailedError(CupyTurboError, RuntimeError):
    """A request that was accepted could not be finished; the engine lives on.

    Examples
    --------
    >>> issubclass(RequestFailedError, RuntimeError)
    True
    """


class UnsupportedModelError(CupyTurboError, ValueError):
    """An architecture or option that is not built, refused by name before any weight is read.

    Examples
    --------
    >>> issubclass(UnsupportedModelError, ValueError)
    True
    """


class CheckpointError(CupyTurboError, ValueError):
    """Files that are missing, torn or do not fit the model's configuration.

    Examples
    --------
    >>> issubclass(CheckpointError, ValueError)
    True
    """
