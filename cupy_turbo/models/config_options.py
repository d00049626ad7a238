"""Options of a configuration that change the arithmetic: those that are not computed here are refused by name."""

from __future__ import annotations

import logging

from cupy_turbo.core.errors import UnsupportedModelError
from cupy_turbo.core.shown import shown, shown_name
from cupy_turbo.models.config_fields import ConfigFields

_log = logging.getLogger("cupy_turbo")

_KEYS_NAMED = 20

_ACCEPTED: dict[str, tuple[object, ...]] = {
    "hidden_act": ("silu", "swish"),
    "attention_bias": (False,),
    "mlp_bias": (False,),
    "qkv_bias": (False,),
    "use_bias": (False,),
    "use_qk_norm": (False,),
    "qk_layernorm": (False,),
    "rope_interleaved": (False,),
    "is_encoder_decoder": (False,),
    "add_cross_attention": (False,),
    "partial_rotary_factor": (1,),
    "pretraining_tp": (0, 1),
    "num_experts": (0, 1),
    "num_local_experts": (0, 1),
    "embedding_multiplier": (1,),
    "residual_multiplier": (1,),
    "attention_multiplier": (),
    "logits_scaling": (1,),
    "logit_scale": (1,),
    "query_pre_attn_scalar": (),
    "attn_logit_softcapping": (0,),
    "final_logit_softcapping": (0,),
    "attention_chunk_size": (),
    "no_rope_layers": ([],),
    "quantization_config": (),
    "compression_config": (),
}
"""Values under which an option changes nothing; absent and null always do."""

_HARMLESS = {
    *("architectures", "model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers"),
    *("num_attention_heads", "num_key_value_heads", "head_dim", "max_position_embeddings", "rms_norm_eps"),
    *("tie_word_embeddings", "rope_theta", "rope_scaling", "rope_parameters", "original_max_position_embeddings"),
    *("eos_token_id", "bos_token_id", "pad_token_id", "unk_token_id", "sep_token_id", "dtype", "torch_dtype"),
    *("sliding_window", "use_sliding_window", "layer_types", "attention_dropout", "hidden_dropout", "resid_pdrop"),
    *("initializer_range", "use_cache", "transformers_version", "_name_or_path", "name_or_path", "id2label"),
    *("label2id", "is_decoder", "output_attentions", "output_hidden_states", "return_dict", "chunk_size_feed_forward"),
    *("problem_type", "task_specific_params", "gradient_checkpointing", "_attn_implementation", "use_return_dict"),
    *("is_llama_config", "transformers.js_config", "auto_map", "max_sequence_length", "tokenizer_class", "torchscript"),
    *("_flash_attn_2_enabled", "_attn_implementation_autoset", "unsloth_version", "unsloth_fixed", "use_flash_attn"),
}


def check_options(fields: ConfigFields, architecture: str, max_position: int) -> None:
    """Refuse what would be computed wrongly, and say in the log which keys were not understood.

    Parameters
    ----------
    fields : ConfigFields
        The configuration.
    architecture : str
        Decides the default of `sliding_window`.
    max_position : int
        A window that is not shorter than the context changes nothing.

    Raises
    ------
    UnsupportedModelError
        Naming the key, its value and the values that are supported.
    """
    for name, accepted in _ACCEPTED.items():
        value = fields.values.get(name)
        if value is not None and value not in accepted:
            raise _refusal(fields, name, value, " or ".join([*map(_as_json, accepted), "null"]))
    layer_types = fields.values.get("layer_types") or []
    if not isinstance(layer_types, list) or any(kind != "full_attention" for kind in layer_types):
        raise _refusal(fields, "layer_types", layer_types, "full_attention in every layer")
    _check_sliding_window(fields, architecture, max_position)
    unknown = sorted(set(fields.values) - set(_ACCEPTED) - _HARMLESS)
    if unknown:
        named = ", ".join(map(shown_name, unknown[:_KEYS_NAMED]))
        rest = len(unknown) - _KEYS_NAMED
        more = f" and {rest} more" if rest > 0 else ""
        _log.warning("%s: keys that are not known are ignored: %s%s", fields.source, named, more)


def _check_sliding_window(fields: ConfigFields, architecture: str, max_position: int) -> None:
    if fields.values.get("use_sliding_window") is False:
        return
    # transformers gives Mistral a window of 4096 where the key is absent; null means none
    absent = 4096 if architecture == "MistralForCausalLM" else None
    window = fields.values.get("sliding_window", absent)
    if window is None:
        return
    if isinstance(window, bool) or not isinstance(window, int) or window < max_position:
        raise _refusal(fields, "sliding_window", window, f"null, or at least max_position_embeddings = {max_position}")


def _refusal(fields: ConfigFields, name: str, value: object, supported: str) -> UnsupportedModelError:
    return UnsupportedModelError(
        f"{fields.source}: {name} = {_as_json(value)} is not supported; supported: {supported}"
    )


def _as_json(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return shown_name(value) if isinstance(value, str) else shown(value)
