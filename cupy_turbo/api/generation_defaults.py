"""Sampling that a checkpoint recommends, for calls that bring no `SamplingParams`."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from cupy_turbo.api.sampling_params import SamplingParams
from cupy_turbo.core.errors import CheckpointError, InvalidRequestError
from cupy_turbo.core.shown import shown

_log = logging.getLogger("cupy_turbo")

_TAKEN = ("temperature", "top_k", "top_p", "min_p")
_NEUTRAL = {"repetition_penalty": 1.0, "typical_p": 1.0, "no_repeat_ngram_size": 0, "num_beams": 1}
"""Settings that change which tokens are chosen and are not applied here, with the value that changes nothing."""


def recommended_sampling(generation_config: Mapping[str, object]) -> SamplingParams:
    """Read the sampling settings of a ``generation_config.json``.

    Parameters
    ----------
    generation_config : mapping
        The parsed file; empty if there is none.

    Returns
    -------
    SamplingParams
        Its temperature, top_k, top_p and min_p; our defaults where it says nothing. What a request says goes before.

    Raises
    ------
    CheckpointError
        If a value is out of its range.

    Notes
    -----
    What is taken is logged, and so is what the file asks for and is not applied. ``do_sample`` is not read: a
    temperature of 0 says greedy. **Source:** vLLM's ``generation_config="auto"``.
    """
    taken = {name: generation_config[name] for name in _TAKEN if generation_config.get(name) is not None}
    try:
        params = SamplingParams(**taken)  # type: ignore[arg-type]
    except InvalidRequestError as error:
        raise CheckpointError(f"generation_config.json: {error}") from None
    if taken:
        _log.info("calls without sampling_params use the checkpoint's: %s", shown(taken))
    for name, neutral in _NEUTRAL.items():
        if generation_config.get(name) not in (None, neutral):
            _log.warning("generation_config.json sets %s, which is not applied", name)
    return params
