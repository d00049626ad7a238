"""The language model as the executor sees it: three calls a step, no knowledge of requests."""

from __future__ import annotations

from typing import Protocol

from cupy_turbo.core.context import current_stream
from cupy_turbo.models.llama import Llama
from cupy_turbo.models.step import Step
from cupy_turbo.ops.argmax import argmax
from cupy_turbo.ops.commit_tokens import commit_tokens
from cupy_turbo.ops.sample import sample


class LanguageModel(Protocol):
    """What a `ModelExecutor` runs. Each call queues work on `current_stream()` and returns without waiting."""

    def prepare(self, step: Step) -> None:
        """Bring the persistent device state up to date with the step's inputs."""

    def forward(self, step: Step) -> None:
        """Compute logits and sample the next tokens."""

    def unprepare(self, step: Step) -> None:
        """Write the results that the host will read."""


class CausalLanguageModel:
    """A network with its sampler and its device state.

    Parameters
    ----------
    network : Llama
        Computes the logits.
    vocab_limit : int
        Token ids at and above it are never sampled: the checkpoint's vocabulary may be padded past the tokenizer's.

    Notes
    -----
    **Source:** TurboMind `LanguageModel::Run` (kPrepare, kForward, kUnprep).
    """

    def __init__(self, network: Llama, *, vocab_limit: int) -> None:
        self.network = network
        self.vocab_limit = vocab_limit

    def prepare(self, step: Step) -> None:
        """Apply admissions and block-table deltas."""
        self.network.state.apply(step, current_stream())

    def forward(self, step: Step) -> None:
        """Queue the network and the sampler; greedy batches skip the sampler's passes over the vocabulary."""
        stream, state, samples = current_stream(), self.network.state, step.num_samples
        logits = self.network.forward(step, stream)
        tokens = self.network.workspace.sampled[:samples]
        slots = step.view("sample_slots", samples)
        if step.is_greedy:
            argmax(tokens, logits, slots, state.finished, vocab_limit=self.vocab_limit, stream=stream)
            return
        sample(
            tokens,
            logits,
            slots,
            step.view("sample_positions", samples),
            state.finished,
            state.temperature,
            state.top_k,
            state.top_p,
            state.min_p,
            state.seed,
            vocab_limit=self.vocab_limit,
            stream=stream,
        )

    def unprepare(self, step: Step) -> None:
        """Remember each row's token for the next step, decide which rows have ended, publish both."""
        state, samples = self.network.state, step.num_samples
        commit_tokens(
            step.results.device["tokens"][:samples],
            step.results.device["status"][:samples],
            self.network.workspace.sampled[:samples],
            step.view("sample_slots", samples),
            step.view("sample_positions", samples),
            state.last_tokens,
            state.finished,
            state.stop_position,
            state.stop_ids,
            stream=current_stream(),
        )
