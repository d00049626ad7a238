"""The one door that every request comes through: both ends of every limit, and nothing is taken before."""

from __future__ import annotations

import numpy as np
import pytest

from cupy_turbo.core.errors import ContextLengthError, InvalidRequestError
from cupy_turbo.core.queue import Queue
from cupy_turbo.device import open_device
from cupy_turbo.engine.admission import check_request
from cupy_turbo.engine.config import EngineConfig
from cupy_turbo.engine.engine import Engine
from cupy_turbo.engine.request import Request
from cupy_turbo.models.language_model import LanguageModel
from cupy_turbo.models.step import MAX_STOP_IDS, Step

CONFIG = EngineConfig(
    max_model_len=64, max_num_seqs=2, max_num_batched_tokens=16, block_size=16, num_blocks=3, phases=2
)


class NoModel:
    """Never runs: the engine is not started."""

    def prepare(self, step: Step) -> None: ...

    def forward(self, step: Step) -> None: ...

    def unprepare(self, step: Step) -> None: ...


def request(prompt_len: int = 4, stop_position: int = 10, stop_ids: int = 0, capacity: int | None = None) -> Request:
    return Request(
        request_id="r",
        prompt_ids=np.zeros(prompt_len, np.int32),
        stop_position=stop_position,
        stop_ids=tuple(range(stop_ids)),
        temperature=0.0,
        top_k=0,
        top_p=1.0,
        min_p=0.0,
        seed=0,
        events=Queue(capacity),
    )


@pytest.mark.parametrize(
    "good",
    [request(1, 2), request(48, 49), request(1, 49), request(stop_ids=MAX_STOP_IDS)],
    ids=["shortest", "longest prompt", "longest answer", "most stop ids"],
)
def test_what_fits_exactly_is_taken(good: Request) -> None:
    check_request(good, CONFIG)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (request(0, 5), "0 prompt tokens"),
        (request(5, 5), "5 prompt tokens and ends at 5"),
        (request(5, -1), "ends at -1"),
        (request(4, 65), "max_model_len is 64"),
        (request(4, 2**31), "max_model_len is 64"),
        (request(4, 50), "= 4 KV blocks of 16, but the pool has 3"),
        (request(stop_ids=MAX_STOP_IDS + 1), "33 stop ids"),
        (request(capacity=1), "slow consumer"),
    ],
)
def test_what_could_never_run_is_refused_by_name(bad: Request, message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message) as refused:
        check_request(bad, CONFIG)
    assert refused.value.parameter
    assert isinstance(refused.value, ContextLengthError) == ("max_model_len" in message)


def test_a_request_is_submitted_once() -> None:
    """Twice it would hold two slots and get the tokens of both."""
    model: LanguageModel = NoModel()
    engine = Engine(model, open_device("host"), CONFIG)
    once = request()
    engine.submit(once)
    with pytest.raises(InvalidRequestError, match="before"):
        engine.submit(once)
    engine.close()
    assert once.finish_reason == "abort"
    assert once.events.statistics().pushed == 1
