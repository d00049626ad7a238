"""From a checkpoint to a device."""

from __future__ import annotations

import logging

from tqdm import tqdm

from cupy_turbo.checkpoint.checkpoint import Checkpoint
from cupy_turbo.core.dtypes import DType, bfloat16, float16
from cupy_turbo.core.protocols import Device
from cupy_turbo.models.config import ModelConfig
from cupy_turbo.models.llama_weights import LayerWeights, LlamaWeights, allocate_weights, weight_destinations
from cupy_turbo.models.random_weights import random_weights
from cupy_turbo.models.weight_upload import WeightUpload

__all__ = ["LayerWeights", "LlamaWeights", "load_weights", "random_weights"]

_log = logging.getLogger("cupy_turbo")


def load_weights(
    checkpoint: Checkpoint,
    config: ModelConfig,
    device: Device,
    dtype: DType,
    *,
    progress: bool = True,
    seed: int = 0,
) -> LlamaWeights:
    """Bring a checkpoint's weights to a device; each tensor is read once, a few MB at a time.

    Parameters
    ----------
    checkpoint : Checkpoint
        Holds the tensors of `config`.
    config : ModelConfig
        Shapes.
    device : Device
        Where the arrays go.
    dtype : numpy.dtype
        Element type to convert to: float32, float16 or bfloat16.
    progress : bool
        Show a bar on stderr if that is a terminal.
    seed : int
        Of the weights of a `random:` checkpoint, from 0.

    Returns
    -------
    LlamaWeights
        Complete: the copies have run.

    Raises
    ------
    CheckpointError
        If a file has changed since it was opened, or a weight is not finite in `dtype`, naming the tensor.

    Notes
    -----
    Host memory beyond the arrays stays under 0.2 GB: two pinned buffers, and one chunk as it was read.
    """
    if config.dtype == bfloat16 and dtype == float16:
        _log.warning("the checkpoint is bfloat16: in float16 its activations may overflow, which shows as NaN logits")
    if checkpoint.is_random:
        return random_weights(config, device, dtype, seed)
    weights = allocate_weights(config, device, dtype)
    pairs = [(checkpoint.tensors[name], target) for name, target in weight_destinations(config, weights)]
    sizes = [target.nbytes for _, target in pairs]
    # disable=None means: no bar where stderr is no terminal
    with tqdm(total=sum(sizes), desc="loading", unit="B", unit_scale=True, disable=None if progress else True) as bar:
        upload = WeightUpload(device, dtype, largest=max(sizes), advance=bar.update)
        for spec, target in pairs:
            upload.send(spec, target)
        upload.finish()
    return weights
