"""The Llama network: token ids in, logits out, written in the order of the paper."""

from __future__ import annotations

from cupy_turbo.core.protocols import Array
from cupy_turbo.core.stream import Stream
from cupy_turbo.models.config import ModelConfig
from cupy_turbo.models.kv_cache import KVCache
from cupy_turbo.models.slot_state import SlotState
from cupy_turbo.models.step import Step
from cupy_turbo.models.weights import LayerWeights, LlamaWeights
from cupy_turbo.models.workspace import Workspace, decode_splits
from cupy_turbo.ops.add_rms_norm import add_rms_norm
from cupy_turbo.ops.attention_decode import attention_decode
from cupy_turbo.ops.attention_prefill import attention_prefill
from cupy_turbo.ops.embedding import embedding
from cupy_turbo.ops.gather_rows import gather_rows
from cupy_turbo.ops.gemm import gemm
from cupy_turbo.ops.rms_norm import rms_norm
from cupy_turbo.ops.rope_kv_write import rope_kv_write
from cupy_turbo.ops.silu_mul import silu_mul


class Llama:
    """A decoder-only transformer with RMSNorm, rotary positions, grouped-query attention and SwiGLU.

    Parameters
    ----------
    config : ModelConfig
        Shapes and constants.
    weights : LlamaWeights
        Device arrays; query, key and value fused into one matrix, gate and up into another.
    cos_sin : Array
        (max_position, head_dim) float32, cosines then sines.
    kv_cache, state, workspace
        The buffers that the pass reads and writes.

    Notes
    -----
    **Source:** Touvron et al. 2023 (LLaMA); shapes: T tokens, H hidden, D head_dim, F intermediate, V vocabulary.
    """

    def __init__(
        self,
        config: ModelConfig,
        weights: LlamaWeights,
        cos_sin: Array,
        kv_cache: KVCache,
        state: SlotState,
        workspace: Workspace,
    ) -> None:
        self.config, self.weights, self.cos_sin = config, weights, cos_sin
        self.kv_cache, self.state, self.workspace = kv_cache, state, workspace

    def forward(self, step: Step, stream: Stream) -> Array:
        """Queue the pass on `stream`; return the logits, (num_samples, V) float32, valid once the stream gets there."""
        tokens, samples, space, weights = step.num_tokens, step.num_samples, self.workspace, self.weights
        eps = self.config.rms_norm_eps
        residual = space.residual[:tokens]  # (T, H), the running sum that every block adds to
        normed = space.normed[:tokens]  # (T, H)
        projected = space.projected[:tokens]  # (T, H)

        embedding(residual, weights.embed, step.view("token_ids", tokens), self.state.last_tokens, stream=stream)
        rms_norm(normed, residual, weights.layers[0].attn_norm, eps=eps, stream=stream)
        next_norms = [layer.attn_norm for layer in weights.layers[1:]] + [weights.norm]
        for layer, (k_cache, v_cache), next_norm in zip(weights.layers, self.kv_cache.layers, next_norms, strict=True):
            attended = self._attention(normed, layer, k_cache, v_cache, step, stream)
            gemm(projected, attended, layer.o, stream=stream)
            add_rms_norm(normed, residual, projected, layer.mlp_norm, eps=eps, stream=stream)
            activated = self._feed_forward(normed, layer, stream)
            gemm(projected, activated, layer.down, stream=stream)
            add_rms_norm(normed, residual, projected, next_norm, eps=eps, stream=stream)

        selected, logits = space.selected[:samples], space.logits[:samples]
        gather_rows(selected, normed, step.view("sample_tokens", samples), stream=stream)
        gemm(logits, selected, weights.lm_head, stream=stream)
        return logits

    def _attention(
        self, normed: Array, layer: LayerWeights, k_cache: Array, v_cache: Array, step: Step, stream: Stream
    ) -> Array:
        tokens, rows, decode_rows = step.num_tokens, step.num_rows, step.num_decode_rows
        config, state, space = self.config, self.state, self.workspace
        qkv, out = space.qkv[:tokens], space.attended[:tokens]  # (T, (Hq + 2 Hkv) D), (T, Hq D)
        perm, context_len = step.view("perm", rows), step.view("context_len", rows)
        scale = config.head_dim**-0.5

        gemm(qkv, normed, layer.qkv, stream=stream)
        rope_kv_write(
            qkv,
            k_cache,
            v_cache,
            self.cos_sin,
            step.view("positions", tokens),
            step.view("token_rows", tokens),
            perm,
            state.finished,
            state.block_table,
            num_heads=config.num_heads,
            stream=stream,
        )
        if decode_rows:
            attention_decode(
                out[:decode_rows],
                qkv[:decode_rows],
                k_cache,
                v_cache,
                state.block_table,
                perm[:decode_rows],
                state.finished,
                context_len[:decode_rows],
                space.attention_partial,
                num_heads=config.num_heads,
                num_rows=decode_rows,
                num_splits=decode_splits(decode_rows, config.num_kv_heads),
                scale=scale,
                stream=stream,
            )
        if rows > decode_rows:
            attention_prefill(
                out,
                qkv,
                k_cache,
                v_cache,
                state.block_table,
                perm,
                step.view("query_start", rows + 1),
                context_len,
                num_heads=config.num_heads,
                first_row=decode_rows,
                num_rows=rows - decode_rows,
                max_query_len=step.max_query_len,
                scale=scale,
                stream=stream,
            )
        return out

    def _feed_forward(self, normed: Array, layer: LayerWeights, stream: Stream) -> Array:
        tokens = normed.shape[0]
        gate_up, activated = self.workspace.gate_up[:tokens], self.workspace.activated[:tokens]  # (T, 2F), (T, F)
        gemm(gate_up, normed, layer.gate_up, stream=stream)
        silu_mul(activated, gate_up, stream=stream)
        return activated
