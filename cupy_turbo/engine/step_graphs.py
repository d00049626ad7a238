"""Decode steps as captured graphs: one launch for the whole step."""

from __future__ import annotations

import logging
from bisect import bisect_left

from cupy_turbo.core.context import current_stream
from cupy_turbo.core.errors import DeviceLostError
from cupy_turbo.core.protocols import Graph
from cupy_turbo.engine.batch import BatchData
from cupy_turbo.models.language_model import LanguageModel
from cupy_turbo.models.step import Step

_log = logging.getLogger("cupy_turbo")


def graph_buckets(max_rows: int) -> list[int]:
    """Row counts that get a graph of their own: 1, 2, 4, then every 8th, up to `max_rows`."""
    return sorted({size for size in (1, 2, 4, *range(8, max_rows, 8)) if size < max_rows} | {max_rows})


def bucket_for(buckets: list[int], rows: int) -> int:
    """Smallest bucket that holds `rows` rows, 0 if none does."""
    index = bisect_left(buckets, rows)
    return buckets[index] if index < len(buckets) else 0


class StepGraphs:
    """A `LanguageModel` that replays a captured graph wherever a step's launches are always the same.

    A step with a bucket (decode rows only, padded to the bucket's size) is run directly the first time its
    (phase, bucket, greedy) comes along, captured the second time and replayed from then on; any other step goes to the
    model as it is.
    The phase belongs to the key because its input arena has its own addresses.

    Parameters
    ----------
    model : LanguageModel
        Does the work; its three calls together become one graph.

    Notes
    -----
    A capture queues nothing, so the step is run once directly before it is captured: kernels compile and load then,
    which no capture may do. **Source:** CUDA graphs as vLLM and SGLang use them for decode.
    """

    def __init__(self, model: LanguageModel) -> None:
        self._model = model
        self._graphs: dict[tuple[int, int, bool], Graph] = {}
        self._warm: set[tuple[int, int, bool]] = set()
        self._refused: set[tuple[int, int, bool]] = set()
        self._generation = 0

    @property
    def num_graphs(self) -> int:
        """Graphs captured so far."""
        return len(self._graphs)

    def prepare(self, step: Step) -> None:
        """Pass on a step that has no graph."""
        if self._key(step) is None:
            self._model.prepare(step)

    def forward(self, step: Step) -> None:
        """Replay the step's graph, capturing it when its shape has been run once before."""
        key = self._key(step)
        if key is None:
            self._model.forward(step)
            return
        self._follow_reloads()
        graph = self._graphs.get(key)
        if graph is None and key in self._warm:
            graph = self._capture(key, step)
        if graph is not None:
            graph.launch(current_stream())
            return
        self._run_all(step)
        if key not in self._refused:
            self._warm.add(key)  # only now: a first run that failed has not loaded every kernel

    def unprepare(self, step: Step) -> None:
        """Pass on a step that has no graph."""
        if self._key(step) is None:
            self._model.unprepare(step)

    def _follow_reloads(self) -> None:
        """Drop the graphs of kernels that were edited since: a graph holds what was compiled when it was captured."""
        generation = current_stream().device.kernel_generation
        if generation != self._generation:
            self._generation = generation
            for known in (self._graphs, self._warm, self._refused):
                known.clear()

    def _key(self, step: Step) -> tuple[int, int, bool] | None:
        if not isinstance(step, BatchData) or not step.bucket:
            return None
        return step.phase, step.bucket, step.is_greedy

    def _run_all(self, step: Step) -> None:
        self._model.prepare(step)
        self._model.forward(step)
        self._model.unprepare(step)

    def _capture(self, key: tuple[int, int, bool], step: Step) -> Graph | None:
        """Capture a step; None if that failed, which queued nothing: such steps are run directly from then on."""
        stream = current_stream()
        self._warm.discard(key)
        try:
            with stream.device.capture(stream) as captured:
                self._run_all(step)
            graph = captured.graph
        except DeviceLostError:
            raise
        except Exception as error:
            self._refused.add(key)
            _log.warning("decode steps of %d rows run without a graph, its capture failed: %r", step.num_rows, error)
            return None
        self._graphs[key] = graph
        _log.debug("captured a decode graph: phase %d, %d rows, greedy %s", *key)
        return graph
