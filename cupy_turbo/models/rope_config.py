"""Settings of rotary position embedding, read from both generations of `config.json`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from cupy_turbo.core.errors import UnsupportedModelError
from cupy_turbo.core.shown import shown, shown_name
from cupy_turbo.models.config_fields import ConfigFields

ROPE_TYPES = ("default", "linear", "dynamic", "llama3", "yarn")
"""Scaling types that a `config.json` may name."""

MAX_POSITION = 1 << 24
"""The largest context: float32 counts positions exactly up to here."""

_KNOWN_KEYS = {
    *("rope_type", "type", "rope_theta", "factor", "original_max_position_embeddings", "low_freq_factor"),
    *("high_freq_factor", "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"),
    *("partial_rotary_factor", "finetuned"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeConfig:
    """How positions become angles. Fields that a type does not use keep their defaults.

    Parameters
    ----------
    type : str
        One of `ROPE_TYPES`, or "factors": each frequency divided by its entry of `frequency_factors` (GGUF).
    theta : float
        Base of the geometric row of frequencies, > 1.
    factor : float
        Stretch of the context, >= 1 (linear, dynamic, llama3, yarn).
    original_max_position : int
        Context that the model was first trained on, in tokens (dynamic, llama3, yarn).
    low_freq_factor, high_freq_factor : float
        Original contexts per wavelength between which llama3 blends.
    beta_fast, beta_slow : float
        Turns over the original context between which yarn blends.
    attention_factor : float
        Multiplies cosines and sines, so attention scores grow by its square (yarn).
    truncate : bool
        Whether yarn's blend begins and ends at whole dimensions.
    frequency_factors : tuple of float
        head_dim / 2 divisors.
    """

    type: str = "default"
    theta: float = 10000.0
    factor: float = 1.0
    original_max_position: int = 0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    attention_factor: float = 1.0
    truncate: bool = True
    frequency_factors: tuple[float, ...] = ()


def read_rope_config(values: Mapping[str, object], source: str, max_position: int) -> RopeConfig:
    """Read `rope_theta` with `rope_scaling` (transformers 4) or `rope_parameters` (transformers 5).

    Parameters
    ----------
    values : mapping
        The whole `config.json`.
    source : str
        The file, as errors should name it.
    max_position : int
        Stands in for a missing `original_max_position_embeddings`, as in transformers.

    Raises
    ------
    UnsupportedModelError
        If the type, or a key of the scaling, is not known: to ignore one would be wrong only for long texts.
    CheckpointError
        If a value is missing, wrongly typed or out of range.
    """
    fields = ConfigFields(values, source)
    names = [name for name in ("rope_parameters", "rope_scaling") if fields.mapping(name)]
    if len(names) == 2 and values[names[0]] != values[names[1]]:
        raise fields.error("rope_parameters", "and rope_scaling are both there and differ")
    name = names[0] if names else "rope_parameters"
    scaling = ConfigFields(fields.mapping(name), f"{source}: {name}")
    kind = _rope_type(scaling)
    unknown = sorted(set(scaling.values) - _KNOWN_KEYS)
    if unknown:
        raise UnsupportedModelError(
            f"{scaling.source} has keys that are not known: {', '.join(map(shown_name, unknown[:8]))}"
        )
    if scaling.number("partial_rotary_factor", 0, 1, default=1) != 1:
        raise UnsupportedModelError(f"{scaling.source}: partial_rotary_factor other than 1 is not supported")
    theta = fields.number("rope_theta", 1.0001, 1e15, default=10000.0)
    theta = scaling.number("rope_theta", 1.0001, 1e15, default=theta)
    if fields.has("rope_theta") and theta != fields.values["rope_theta"]:
        raise fields.error("rope_theta", f"is {fields.values['rope_theta']}, but {theta:g} in {name}")
    if kind == "default":
        return RopeConfig(theta=theta)
    return _scaled(kind, theta, scaling, fields, max_position)


def _rope_type(scaling: ConfigFields) -> str:
    kind = scaling.text("rope_type", default=scaling.text("type", default="default"))
    if scaling.has("type") and scaling.values["type"] != kind:
        raise scaling.error("type", f"is {shown(scaling.values['type'])}, but rope_type is {shown(kind)}")
    if kind not in ROPE_TYPES:
        raise UnsupportedModelError(
            f"{scaling.source}: rope type {shown(kind)} is not supported; supported: {', '.join(ROPE_TYPES)}"
        )
    return kind


def _scaled(kind: str, theta: float, scaling: ConfigFields, fields: ConfigFields, max_position: int) -> RopeConfig:
    factor = scaling.number("factor", 1, 1e6)
    if kind == "linear":
        return RopeConfig(type=kind, theta=theta, factor=factor)
    if kind == "dynamic":
        # transformers stretches from max_position_embeddings, whatever the scaling itself says
        return RopeConfig(type=kind, theta=theta, factor=factor, original_max_position=max_position)
    original = fields.integer("original_max_position_embeddings", 1, MAX_POSITION, default=max_position)
    if not fields.has("original_max_position_embeddings"):
        original = scaling.integer("original_max_position_embeddings", 1, MAX_POSITION, default=max_position)
    if kind == "llama3":
        low = scaling.number("low_freq_factor", 1e-3, 1e6)
        high = scaling.number("high_freq_factor", 1e-3, 1e6)
        if high <= low:
            raise scaling.error("high_freq_factor", f"must be above low_freq_factor = {low:g}, got {high:g}")
        return RopeConfig(
            type=kind,
            theta=theta,
            factor=factor,
            original_max_position=original,
            low_freq_factor=low,
            high_freq_factor=high,
        )
    fast = scaling.number("beta_fast", 1e-3, 1e6, default=32)
    slow = scaling.number("beta_slow", 1e-3, 1e6, default=1)
    if fast <= slow:
        raise scaling.error("beta_fast", f"must be above beta_slow = {slow:g}, got {fast:g}")
    return RopeConfig(
        type=kind,
        theta=theta,
        factor=factor,
        original_max_position=original,
        beta_fast=fast,
        beta_slow=slow,
        attention_factor=_yarn_attention_factor(scaling, factor),
        truncate=scaling.boolean("truncate", default=True),
    )


def _yarn_attention_factor(scaling: ConfigFields, factor: float) -> float:
    mscale = scaling.number("mscale", 0, 1e3, default=0)
    mscale_all_dim = scaling.number("mscale_all_dim", 0, 1e3, default=0)
    if mscale and mscale_all_dim:
        default = (0.1 * mscale * math.log(factor) + 1) / (0.1 * mscale_all_dim * math.log(factor) + 1)
    else:
        default = 0.1 * math.log(factor) + 1
    return scaling.number("attention_factor", 1e-6, 1e6, default=default)
