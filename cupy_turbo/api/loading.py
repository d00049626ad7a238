"""From a model's name to everything that an engine needs, in the order that fails earliest."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cupy_turbo.api.generation_defaults import recommended_sampling
from cupy_turbo.api.sampling_params import SamplingParams
from cupy_turbo.api.sizing import choose_limits, choose_num_blocks, engine_config
from cupy_turbo.checkpoint import Checkpoint, open_checkpoint
from cupy_turbo.core.dtypes import FLOAT_TYPES, parse_dtype
from cupy_turbo.core.errors import InvalidRequestError
from cupy_turbo.core.protocols import Device
from cupy_turbo.core.shown import shown
from cupy_turbo.device import open_device
from cupy_turbo.engine.config import EngineConfig
from cupy_turbo.models.config import ModelConfig
from cupy_turbo.models.kv_cache import KVCache
from cupy_turbo.models.language_model import CausalLanguageModel
from cupy_turbo.models.llama import Llama
from cupy_turbo.models.rope import rope_table
from cupy_turbo.models.slot_state import SlotState
from cupy_turbo.models.step import StepLimits
from cupy_turbo.models.weights import LlamaWeights, load_weights
from cupy_turbo.models.workspace import Workspace
from cupy_turbo.text.tokenizer import Tokenizer, open_tokenizer


@dataclass
class LoadedModel:
    """A model on its device, sized and ready for an engine."""

    name: str
    config: ModelConfig
    tokenizer: Tokenizer
    device: Device
    dtype: np.dtype
    language_model: CausalLanguageModel
    engine_config: EngineConfig
    eos_token_ids: tuple[int, ...]
    default_sampling_params: SamplingParams

    def close(self) -> None:
        """Free the device; the model cannot run afterwards."""
        del self.language_model
        self.device.close()


def load_model(
    model: str | Path,
    *,
    device: str,
    dtype: str,
    max_model_len: int | None,
    max_num_seqs: int | None,
    max_num_batched_tokens: int | None,
    block_size: int,
    gpu_memory_utilization: float,
    phases: int,
    revision: str | None,
    progress: bool,
) -> LoadedModel:
    """Read the configuration, check every option, then open the device and load; see `LLM` for the parameters."""
    is_number = isinstance(gpu_memory_utilization, int | float) and not isinstance(gpu_memory_utilization, bool)
    if not is_number or not 0 < gpu_memory_utilization <= 1:
        raise InvalidRequestError(
            f"gpu_memory_utilization must be a number > 0 and <= 1, got {shown(gpu_memory_utilization)}",
            parameter="gpu_memory_utilization",
            value=gpu_memory_utilization,
        )
    if type(phases) is not int or phases not in (1, 2):
        raise InvalidRequestError(
            f"phases must be 1 (synchronous) or 2 (one batch ahead), got {shown(phases)}",
            parameter="phases",
            value=phases,
        )
    if not isinstance(device, str):
        raise InvalidRequestError(
            f"device must be auto, host, cuda or cuda:N, got {shown(device)}", parameter="device", value=device
        )
    checkpoint = open_checkpoint(model, revision=revision)
    config = checkpoint.config
    chosen = _choose_dtype(dtype, config)
    sampling = recommended_sampling(checkpoint.generation_config)
    tokenizer = open_tokenizer(checkpoint.tokenizer_source, checkpoint.path)
    opened = open_device(device)
    try:
        limits = choose_limits(
            config,
            opened,
            max_model_len=max_model_len,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            block_size=block_size,
        )
        weights = load_weights(checkpoint, config, opened, chosen, progress=progress)
        language_model, num_blocks = build_language_model(
            config,
            weights,
            opened,
            chosen,
            limits,
            gpu_memory_utilization=gpu_memory_utilization,
            vocab_limit=_vocab_limit(checkpoint, tokenizer),
        )
        settings = engine_config(limits, num_blocks=num_blocks, phases=phases)
    except BaseException:
        opened.close()
        raise
    return LoadedModel(
        name=str(model),
        config=config,
        tokenizer=tokenizer,
        device=opened,
        dtype=chosen,
        language_model=language_model,
        engine_config=settings,
        eos_token_ids=_eos_token_ids(checkpoint, tokenizer),
        default_sampling_params=sampling,
    )


def build_language_model(
    config: ModelConfig,
    weights: LlamaWeights,
    device: Device,
    dtype: np.dtype,
    limits: StepLimits,
    *,
    gpu_memory_utilization: float = 0.9,
    num_blocks: int | None = None,
    vocab_limit: int | None = None,
) -> tuple[CausalLanguageModel, int]:
    """Take every buffer and put the network together; return it and the blocks of its KV pool.

    The pool comes last and takes what is left, unless `num_blocks` says its size.
    """
    with device:
        state = SlotState(device, limits)
        workspace = Workspace(device, config, limits, dtype)
        cos_sin = device.upload(rope_table(config, limits.max_model_len))
        if num_blocks is None:
            num_blocks = choose_num_blocks(config, limits, dtype, device, gpu_memory_utilization=gpu_memory_utilization)
        cache = KVCache(device, config, num_blocks=num_blocks, block_size=limits.block_size, dtype=dtype)
        network = Llama(config, weights, cos_sin, cache, state, workspace)
    return CausalLanguageModel(network, vocab_limit=vocab_limit or config.vocab_size), num_blocks


def _choose_dtype(dtype: str, config: ModelConfig) -> np.dtype:
    try:
        chosen = config.dtype if isinstance(dtype, str) and dtype == "auto" else parse_dtype(dtype)
    except (TypeError, ValueError):
        chosen = np.dtype(np.void)
    if chosen not in FLOAT_TYPES:
        names = ", ".join(each.name for each in FLOAT_TYPES)
        raise InvalidRequestError(f"dtype must be auto, {names}, got {shown(dtype)}", parameter="dtype", value=dtype)
    return chosen


def _vocab_limit(checkpoint: Checkpoint, tokenizer: Tokenizer) -> int:
    """Ids that may be sampled: a padded vocabulary has more rows than the tokenizer has tokens.

    A random model borrows a tokenizer that has nothing to do with its shape, and samples all of its ids.
    """
    vocab_size = checkpoint.config.vocab_size
    return vocab_size if checkpoint.is_random else min(vocab_size, tokenizer.vocab_size)


def _eos_token_ids(checkpoint: Checkpoint, tokenizer: Tokenizer) -> tuple[int, ...]:
    """Return what ends an answer: the checkpoint's own list, or else the tokenizer's end-of-sequence token."""
    if checkpoint.config.eos_token_ids or checkpoint.is_random:
        return checkpoint.config.eos_token_ids
    return () if tokenizer.eos_token_id is None else (tokenizer.eos_token_id,)
