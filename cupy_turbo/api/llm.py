"""`LLM`: load a model, generate, close."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tqdm import tqdm

from cupy_turbo.api.loading import LoadedModel, load_model
from cupy_turbo.api.outputs import CompletionOutput, RequestOutput
from cupy_turbo.api.requests import Prompt, RequestBuilder, TokenizedPrompt, listed_prompts, pair_params
from cupy_turbo.api.sampling_params import SamplingParams
from cupy_turbo.api.sizing import check_integer
from cupy_turbo.api.text_stream import TextStream
from cupy_turbo.core.queue import Queue
from cupy_turbo.engine.admission import check_request
from cupy_turbo.engine.engine import Engine
from cupy_turbo.engine.request import Request, RequestEvent
from cupy_turbo.text.detokenizer import Detokenizer

Message = Mapping[str, Any]


class LLM:
    """A language model with its engine: text in, text out.

    Parameters
    ----------
    model : str or Path
        ``"demo"`` (a tiny Shakespeare model inside the package), a folder with safetensors, a ``.gguf`` file, a hub
        id, or ``"random:PRESET"`` for benchmarks.
    device : str, default "auto"
        ``"cuda"``, ``"cuda:N"`` or ``"host"``; "auto" takes a usable GPU and the host otherwise.
    dtype : str, default "auto"
        ``"float32"``, ``"float16"`` or ``"bfloat16"``; "auto" keeps the checkpoint's.
    max_model_len : int, optional
        Tokens of prompt and answer together; default the model's own limit.
    max_num_seqs : int, optional
        Sequences running at once; default 256 on a GPU, 64 on the host.
    max_num_batched_tokens : int, optional
        Tokens of one step; longer prompts run in chunks. Default 8192 on a GPU, 512 on the host.
    block_size : int, default 64
        Tokens of a KV block: 16, 32, 64 or 128.
    gpu_memory_utilization : float, default 0.9
        Share of the card's memory that weights, workspace and KV pool may take, 0 < share <= 1.
    phases : int, default 2
        2 prepares a batch while the one before runs; 1 is synchronous. The tokens are the same.
    seed : int, default 0
        Seeds the requests that bring no seed of their own.
    revision : str, optional
        Revision of a hub id.
    progress : bool, default True
        Show progress bars, on a terminal.

    Raises
    ------
    UnsupportedModelError
        If the architecture or one of its options is not supported, before any weight is read.
    CheckpointError
        If files are missing, damaged or do not fit the configuration.
    InvalidRequestError
        If an option is out of range, or nothing fits the device.
    DeviceUnavailableError
        If the device cannot be opened here.

    Examples
    --------
    >>> from cupy_turbo import LLM, SamplingParams
    >>> with LLM("demo", device="host") as llm:
    ...     outputs = llm.generate("ROMEO:", SamplingParams(temperature=0, max_tokens=8))
    >>> outputs[0].outputs[0].finish_reason
    'length'
    """

    def __init__(
        self,
        model: str | Path,
        *,
        device: str = "auto",
        dtype: str = "auto",
        max_model_len: int | None = None,
        max_num_seqs: int | None = None,
        max_num_batched_tokens: int | None = None,
        block_size: int = 64,
        gpu_memory_utilization: float = 0.9,
        phases: int = 2,
        seed: int = 0,
        revision: str | None = None,
        progress: bool = True,
    ) -> None:
        check_integer("seed", seed, 0, 2**64 - 1)
        self._loaded: LoadedModel = load_model(
            model,
            device=device,
            dtype=dtype,
            max_model_len=max_model_len,
            max_num_seqs=max_num_seqs,
            max_num_batched_tokens=max_num_batched_tokens,
            block_size=block_size,
            gpu_memory_utilization=gpu_memory_utilization,
            phases=phases,
            revision=revision,
            progress=progress,
        )
        loaded, self._progress = self._loaded, progress
        try:
            self._engine = Engine(loaded.language_model, loaded.device, loaded.engine_config)
            self._engine.start()
        except BaseException:
            loaded.close()
            raise
        self._builder = RequestBuilder(
            loaded.tokenizer,
            vocab_size=loaded.config.vocab_size,
            max_model_len=loaded.engine_config.max_model_len,
            eos_token_ids=loaded.eos_token_ids,
            seed=seed,
        )
        # Also runs at interpreter exit and when the LLM is dropped without close().
        self._finalizer = weakref.finalize(self, _close, self._engine, loaded)

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
    ) -> list[RequestOutput]:
        """Complete one prompt or many, all at once, and return when every one has ended.

        Parameters
        ----------
        prompts : str, sequence of int, or a list of these
            Text, or token ids.
        sampling_params : SamplingParams or sequence of it, optional
            One for all or one each; default is `default_sampling_params`.
        use_tqdm : bool, default True
            Show a progress bar, on a terminal.

        Returns
        -------
        list of RequestOutput
            In the order of the prompts; one element for one prompt. A request that failed on the device has
            ``finish_reason`` "error" and says why in ``error``; the others are not touched by it.

        Raises
        ------
        InvalidRequestError
            If any prompt or parameter is invalid; nothing has run then.
        EngineDeadError
            If the engine is closed or its device died.
        """
        self._engine.require_alive()
        tokenized = [self._builder.tokenize(prompt) for prompt in listed_prompts(prompts)]
        return self._complete(tokenized, sampling_params, use_tqdm)

    def chat(
        self,
        messages: Sequence[Message] | Sequence[Sequence[Message]],
        sampling_params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        use_tqdm: bool = True,
        **template_options: Any,
    ) -> list[RequestOutput]:
        """Answer a conversation or a list of conversations; like `generate`, behind the model's chat template.

        Parameters
        ----------
        messages : sequence of dict, or a list of these
            ``{"role": "user", "content": "…"}`` and so on.
        **template_options
            Passed to the template.
        """
        self._engine.require_alive()
        is_list = isinstance(messages, Sequence) and not isinstance(messages, str | bytes)
        is_single = not is_list or not messages or isinstance(messages[0], Mapping)
        prompts = [self._chat_prompt(each, template_options) for each in ([messages] if is_single else messages)]  # type: ignore[arg-type]
        return self._complete(prompts, sampling_params, use_tqdm)

    def stream(self, prompt: Prompt, sampling_params: SamplingParams | None = None) -> TextStream:
        """Complete one prompt, yielding text as it comes.

        The request starts at once. Leaving the iterator early (``close()``, ``with``, an exception inside it, dropping
        it) cancels it.

        Returns
        -------
        TextStream of StreamDelta
            New text and token ids. The texts joined are the text that `generate` returns; the last delta carries the
            ``finish_reason``.

        Raises
        ------
        InvalidRequestError
            At the call.
        RequestFailedError, EngineDeadError
            While iterating, if the request fails.
        """
        self._engine.require_alive()
        return self._stream(self._builder.tokenize(prompt), sampling_params)

    def stream_chat(
        self, messages: Sequence[Message], sampling_params: SamplingParams | None = None, **template_options: Any
    ) -> TextStream:
        """Answer a conversation, yielding text as it comes; see `stream` and `chat`."""
        self._engine.require_alive()
        return self._stream(self._chat_prompt(messages, template_options), sampling_params)

    def close(self) -> None:
        """Abort what is running, join the threads, free the device memory; idempotent, from any thread.

        Requests that have not ended end as ``"abort"``.
        """
        self._finalizer()
        self._engine.close()  # where another thread is closing, wait for it too

    @property
    def default_sampling_params(self) -> SamplingParams:
        """What a call without `sampling_params` uses: the checkpoint's recommendation."""
        return self._loaded.default_sampling_params

    @property
    def tokenizer(self) -> Any:
        """The model's tokenizer."""
        return self._loaded.tokenizer

    @property
    def config(self) -> Any:
        """The model's configuration."""
        return self._loaded.config

    @property
    def device(self) -> Any:
        """The device that the model runs on."""
        return self._loaded.device

    @property
    def engine(self) -> Engine:
        """The engine behind this model."""
        return self._engine

    def __enter__(self) -> LLM:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "open" if self._finalizer.alive else "closed"
        loaded = self._loaded
        return f"LLM({loaded.name!r}, device={loaded.device.name!r}, dtype={loaded.dtype.name!r}, {state})"

    def _chat_prompt(self, messages: Sequence[Message], options: Mapping[str, Any]) -> TokenizedPrompt:
        text = self._loaded.tokenizer.apply_chat_template(messages, **{"add_generation_prompt": True, **options})
        return self._builder.tokenize(text, add_special_tokens=False)  # the template writes the specials itself

    def _complete(self, prompts: list[TokenizedPrompt], sampling_params: Any, use_tqdm: bool) -> list[RequestOutput]:
        params = pair_params(sampling_params, len(prompts), self.default_sampling_params)
        events: Queue[RequestEvent] = Queue()
        requests = [self._builder.build(prompt, each, events) for prompt, each in zip(prompts, params, strict=True)]
        collected: dict[Request, list[int]] = {request: [] for request in requests}
        ended: dict[Request, RequestEvent] = {}
        hidden = None if use_tqdm and self._progress else True  # None: shown on a terminal only
        for request in requests:
            check_request(request, self._engine.config)  # one that can never fit refuses the call before any has run
        try:
            for request in requests:
                self._engine.submit(request)
            with tqdm(total=len(requests), desc="generate", unit="request", disable=hidden) as bar:
                while len(ended) < len(requests):
                    event = events.pop()
                    collected[event.request].extend(event.token_ids)
                    if event.finish_reason is not None:
                        ended[event.request] = event
                        bar.update()
        except BaseException:
            for request in requests:
                request.cancel()
            raise
        return [
            self._output(prompt, collected[request], ended[request])
            for prompt, request in zip(prompts, requests, strict=True)
        ]

    def _output(self, prompt: TokenizedPrompt, token_ids: list[int], end: RequestEvent) -> RequestOutput:
        tokenizer = self._loaded.tokenizer
        shown = token_ids[:-1] if end.finish_reason == "stop" else token_ids  # the stop token is not part of the text
        detokenizer = Detokenizer(tokenizer, prompt.token_ids)
        text = detokenizer.push(shown) + detokenizer.flush()
        assert end.finish_reason is not None
        completion = CompletionOutput(index=0, text=text, token_ids=tuple(token_ids), finish_reason=end.finish_reason)
        return RequestOutput(
            request_id=end.request.request_id,
            prompt=prompt.text,
            prompt_token_ids=prompt.token_ids,
            outputs=[completion],
            finished=True,
            error=None if end.error is None else str(end.error),
        )

    def _stream(self, prompt: TokenizedPrompt, params: SamplingParams | None) -> TextStream:
        request = self._builder.build(prompt, pair_params(params, 1, self.default_sampling_params)[0], Queue())
        detokenizer = Detokenizer(self._loaded.tokenizer, prompt.token_ids)
        try:
            self._engine.submit(request)
            return TextStream(request, detokenizer)
        except BaseException:  # Ctrl-C: it may have been accepted
            request.cancel()
            raise


def _close(engine: Engine, loaded: LoadedModel) -> None:
    if engine.is_forked:
        return
    engine.close()
    if engine.is_own_thread:
        # The garbage collector runs finalizers on any thread, and one of the engine's cannot wait for itself. At the
        # interpreter's exit no thread can be started; then there is nothing left to free.
        with contextlib.suppress(RuntimeError):
            threading.Thread(target=_close, args=(engine, loaded), name="cupy_turbo-closer").start()
        return
    loaded.close()
