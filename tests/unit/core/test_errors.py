"""Errors can be caught by what they are and by what Python calls them, and survive a trip between processes."""

from __future__ import annotations

import inspect
import pickle

import pytest

from cupy_turbo.core import errors

CLASSES = [value for _, value in inspect.getmembers(errors, inspect.isclass) if value.__module__ == errors.__name__]


@pytest.mark.parametrize("error", CLASSES)
def test_all_are_caught_by_the_base(error: type[Exception]) -> None:
    assert issubclass(error, errors.CupyTurboError)


@pytest.mark.parametrize(
    ("error", "also"),
    [
        (errors.KernelError, errors.DeviceError),
        (errors.CompileError, errors.DeviceError),
        (errors.DeviceLostError, errors.DeviceError),
        (errors.DeviceUnavailableError, errors.DeviceError),
        (errors.ContextLengthError, errors.InvalidRequestError),
        (errors.DeviceError, RuntimeError),
        (errors.EngineDeadError, RuntimeError),
        (errors.RequestFailedError, RuntimeError),
        (errors.InvalidRequestError, ValueError),
        (errors.UnsupportedModelError, ValueError),
        (errors.CheckpointError, ValueError),
    ],
)
def test_second_base(error: type[Exception], also: type[Exception]) -> None:
    assert issubclass(error, also)


def test_endings_of_a_queue_are_told_apart() -> None:
    endings = [errors.QueueClosed, errors.QueueEmpty, errors.QueueFull]
    assert not any(issubclass(one, other) for one in endings for other in endings if one is not other)


@pytest.mark.parametrize("error", CLASSES)
def test_pickles_with_what_it_says(error: type[Exception]) -> None:
    original = error("what happened")
    if isinstance(original, errors.InvalidRequestError):
        original.parameter, original.value = "top_p", 2
    again = pickle.loads(pickle.dumps(original))
    assert type(again) is error
    assert str(again) == "what happened"
    assert vars(again) == vars(original)
