"""ModelConfig reads what transformers 4 and 5 write, and refuses by name what it would compute wrongly."""

from __future__ import annotations

import copy
import json
import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cupy_turbo.checkpoint.presets import PRESETS
from cupy_turbo.core.errors import CheckpointError, UnsupportedModelError
from cupy_turbo.models.config import ModelConfig

BASE: dict[str, object] = {
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 1000,
    "hidden_size": 128,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
}
LLAMA_3_SCALING = {
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
    "rope_type": "llama3",
}


def read(**changes: object) -> ModelConfig:
    return ModelConfig.from_hf({**BASE, **changes})


def test_head_size_is_taken_from_the_file_and_derived_only_where_it_is_absent() -> None:
    assert read().head_dim == 128 // 4
    assert read(head_dim=None).head_dim == 128 // 4
    assert read(head_dim=64).head_dim == 64
    assert read(head_dim=64).tensor_shapes()["model.layers.1.self_attn.o_proj.weight"] == (128, 256)


def test_defaults_of_absent_keys_are_those_of_transformers() -> None:
    absent = {key: value for key, value in BASE.items() if key != "num_key_value_heads"}
    config = ModelConfig.from_hf(absent)
    assert config.num_kv_heads == config.num_heads
    assert (config.rope.type, config.rope.theta) == ("default", 10000.0)
    assert not config.tie_word_embeddings
    assert config.dtype == np.float32
    assert (config.eos_token_ids, config.bos_token_id) == ((), None)


def test_both_generations_of_rope_keys_mean_the_same() -> None:
    new = read(rope_parameters={**LLAMA_3_SCALING, "rope_theta": 500000.0})
    old = read(rope_theta=500000.0, rope_scaling=LLAMA_3_SCALING)
    without = {key: value for key, value in LLAMA_3_SCALING.items() if key != "rope_type"}
    oldest = read(rope_theta=500000.0, rope_scaling={**without, "type": "llama3"})
    assert new == old == oldest
    assert (new.rope.type, new.rope.theta, new.rope.factor) == ("llama3", 500000.0, 8.0)


@pytest.mark.parametrize("name", ["torch_dtype", "dtype"])
@pytest.mark.parametrize("value", ["bfloat16", "torch.bfloat16"])
def test_element_type_is_read_under_both_names(name: str, value: str) -> None:
    assert read(**{name: value}).dtype.name == "bfloat16"


def test_end_ids_come_from_both_configurations_without_repeats() -> None:
    config = ModelConfig.from_hf({**BASE, "eos_token_id": [7, 9]}, generation_config={"eos_token_id": [8, 7]})
    assert config.eos_token_ids == (8, 7, 9)
    assert ModelConfig.from_hf({**BASE, "eos_token_id": 5}, generation_config={}).eos_token_ids == (5,)


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_presets_are_readable(name: str) -> None:
    assert ModelConfig.from_hf(PRESETS[name]).vocab_size == PRESETS[name]["vocab_size"]


def test_mistral_is_read_if_its_window_is_off_or_never_shorter_than_the_context() -> None:
    for window in (None, 4096, 5000):
        assert read(architectures=["MistralForCausalLM"], sliding_window=window).max_position == 4096
    with pytest.raises(UnsupportedModelError, match="sliding_window = 4095 "):
        read(architectures=["MistralForCausalLM"], sliding_window=4095)
    with pytest.raises(UnsupportedModelError, match="sliding_window = 4096 "):  # absent: transformers reads 4096
        read(architectures=["MistralForCausalLM"], max_position_embeddings=32768)


UNSUPPORTED = [
    ("architectures", ["Qwen3ForCausalLM"]),
    ("architectures", ["LlamaForSequenceClassification"]),
    ("attention_bias", True),
    ("mlp_bias", True),
    ("hidden_act", "gelu"),
    ("quantization_config", {"quant_method": "awq"}),
    ("pretraining_tp", 2),
    ("partial_rotary_factor", 0.5),
    ("rope_interleaved", True),
    ("sliding_window", 128),
    ("layer_types", ["full_attention", "sliding_attention"]),
    ("final_logit_softcapping", 30.0),
    ("logits_scaling", 8.0),
    ("num_local_experts", 8),
    ("head_dim", 24),
    ("head_dim", 36),
    ("head_dim", 264),
    ("dtype", "float8_e4m3fn"),
    ("rope_scaling", {"rope_type": "longrope", "factor": 4.0}),
    ("rope_scaling", {"type": "su", "factor": 4.0}),
    ("rope_scaling", {"rope_type": "linear", "factor": 4.0, "mrope_section": [8, 8]}),
    ("rope_parameters", {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.25}),
]


@pytest.mark.parametrize(("name", "value"), UNSUPPORTED, ids=lambda value: str(value)[:40])
def test_what_would_be_computed_wrongly_is_refused_by_name(name: str, value: object) -> None:
    shown = name.rstrip("s") if name == "architectures" else name
    with pytest.raises(UnsupportedModelError, match=shown):
        read(**{name: value})


def test_a_refusal_lists_what_is_supported() -> None:
    with pytest.raises(UnsupportedModelError, match=r"GPT2LMHeadModel.*LlamaForCausalLM, MistralForCausalLM.*SmolLM2"):
        read(architectures=["GPT2LMHeadModel"])
    with pytest.raises(UnsupportedModelError, match=r"'ntk'.*default, linear, dynamic, llama3, yarn"):
        read(rope_scaling={"type": "ntk", "factor": 2.0})
    with pytest.raises(UnsupportedModelError, match=r"model_type 'mamba'"):
        ModelConfig.from_hf({**BASE, "architectures": None, "model_type": "mamba"})


MALFORMED = [
    ("vocab_size", None),
    ("vocab_size", 0),
    ("vocab_size", 2**31),
    ("vocab_size", 1000.0),
    ("vocab_size", True),
    ("hidden_size", "128"),
    ("hidden_size", -128),
    ("num_hidden_layers", 2**63),
    ("num_attention_heads", 3),
    ("num_key_value_heads", 3),
    ("max_position_embeddings", None),
    ("max_position_embeddings", 2**40),
    ("rms_norm_eps", None),
    ("rms_norm_eps", math.nan),
    ("rms_norm_eps", -1e-5),
    ("tie_word_embeddings", 1),
    ("rope_theta", math.inf),
    ("rope_theta", 1.0),
    ("eos_token_id", 1000),
    ("eos_token_id", "2"),
    ("eos_token_id", list(range(17))),
    ("bos_token_id", -1),
    ("dtype", 16),
    ("architectures", "LlamaForCausalLM"),
    ("rope_scaling", [1]),
    ("rope_scaling", {"type": "linear"}),
    ("rope_scaling", {"type": "linear", "factor": 0.5}),
    ("rope_scaling", {"type": "linear", "rope_type": "dynamic", "factor": 2.0}),
    ("rope_scaling", {**LLAMA_3_SCALING, "low_freq_factor": 4.0}),
    ("rope_scaling", {"type": "yarn", "factor": 2.0, "beta_fast": 1.0}),
]


@pytest.mark.parametrize(("name", "value"), MALFORMED, ids=lambda value: str(value)[:40])
def test_a_missing_or_impossible_value_is_named_with_its_file(name: str, value: object) -> None:
    # a head count that does not divide names either side
    shown = "num_attention_heads|head_dim" if name in ("num_attention_heads", "num_key_value_heads") else name
    with pytest.raises(CheckpointError, match=rf"some/config\.json.*({shown})"):
        ModelConfig.from_hf({**BASE, name: value}, source="some/config.json")


def test_contradictory_rope_settings_are_an_error() -> None:
    with pytest.raises(CheckpointError, match="rope_theta"):
        read(rope_theta=1e4, rope_parameters={"rope_type": "default", "rope_theta": 5e5})
    with pytest.raises(CheckpointError, match="differ"):
        read(rope_scaling={"type": "linear", "factor": 2.0}, rope_parameters={"rope_type": "default"})


def test_keys_that_are_not_known_are_told_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    read(frobnication_level=3, use_cache=True)
    assert "frobnication_level" in caplog.text
    assert "use_cache" not in caplog.text


def test_every_config_of_the_package_and_the_parity_files_is_read_in_silence(caplog: pytest.LogCaptureFixture) -> None:
    root = Path(__file__).parents[3]
    files = [root / "cupy_turbo/assets/demo/config.json", *root.glob("tests/parity/*/config.json")]
    assert len(files) >= 4
    for file in files:
        ModelConfig.from_hf(json.loads(file.read_text("utf-8")))
    assert caplog.text == ""


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
KEYS = [*BASE, "head_dim", "rope_theta", "rope_scaling", "rope_parameters", "sliding_window", "layer_types", "dtype"]
KEYS += ["eos_token_id", "bos_token_id", "tie_word_embeddings", "hidden_act", "model_type", "quantization_config"]
SCALING_KEYS = [*LLAMA_3_SCALING, "type", "rope_theta", "beta_fast", "mscale", "truncate", "attention_factor"]


@given(st.dictionaries(st.sampled_from(KEYS), JSON, max_size=3), st.dictionaries(st.sampled_from(SCALING_KEYS), JSON))
def test_no_json_gets_past_as_another_kind_of_exception(changes: dict[str, object], scaling: dict[str, object]) -> None:
    values = {**copy.deepcopy(BASE), "rope_scaling": {**LLAMA_3_SCALING, **scaling}, **changes}
    try:
        config = ModelConfig.from_hf(values)
    except (CheckpointError, UnsupportedModelError):
        return
    assert config.num_heads % config.num_kv_heads == 0
    assert 32 <= config.head_dim <= 256
