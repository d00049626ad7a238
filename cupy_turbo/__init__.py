"""An LLM inference engine whose whole forward pass is CUDA kernels that you can read."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cupy_turbo.api.llm import LLM
    from cupy_turbo.api.outputs import CompletionOutput, RequestOutput, StreamDelta
    from cupy_turbo.api.sampling_params import SamplingParams
    from cupy_turbo.core.context import Context
    from cupy_turbo.core.queue import Queue
    from cupy_turbo.core.stream import Event, Stream
    from cupy_turbo.device import open_device
    from cupy_turbo.device.sanitize import sanitize
    from cupy_turbo.engine.batch import BatchData
    from cupy_turbo.engine.model_executor import ModelExecutor

__version__ = "0.1.0"

_HOMES = {
    "LLM": "api.llm",
    "SamplingParams": "api.sampling_params",
    "RequestOutput": "api.outputs",
    "CompletionOutput": "api.outputs",
    "StreamDelta": "api.outputs",
    "open_device": "device",
    "sanitize": "device.sanitize",
    "Stream": "core.stream",
    "Event": "core.stream",
    "Context": "core.context",
    "Queue": "core.queue",
    "BatchData": "engine.batch",
    "ModelExecutor": "engine.model_executor",
}

__all__ = [
    "LLM",
    "BatchData",
    "CompletionOutput",
    "Context",
    "Event",
    "ModelExecutor",
    "Queue",
    "RequestOutput",
    "SamplingParams",
    "Stream",
    "StreamDelta",
    "open_device",
    "sanitize",
]


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used, so that ``import cupy_turbo`` stays quick."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
