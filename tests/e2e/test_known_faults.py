"""Faults that other engines shipped, each by the report that described it; the right value is ours."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import json
import os
import shutil
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from cupy_turbo import LLM, SamplingParams
from cupy_turbo.core.errors import InvalidRequestError
from cupy_turbo.core.queue import Queue
from cupy_turbo.engine.engine import Engine
from cupy_turbo.engine.request import Request, RequestEvent

DEMO = Path(__file__).resolve().parents[2] / "cupy_turbo" / "assets" / "demo"
GREEDY = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
OPTIONS: dict[str, Any] = {"dtype": "float32", "max_model_len": 128, "max_num_seqs": 4, "block_size": 16}


@pytest.fixture(scope="module")
def llm(device_kind: str) -> Iterator[LLM]:
    with LLM("demo", device=device_kind, **OPTIONS) as llm:
        yield llm


def demo_with(folder: Path, **files: dict[str, Any]) -> Path:
    """A copy of the demo model with entries of its JSON files replaced."""
    shutil.copytree(DEMO, folder)
    for name, entries in files.items():
        path = folder / f"{name}.json"
        path.write_text(json.dumps({**json.loads(path.read_text("utf-8")), **entries}), "utf-8")
    return folder


def ids(llm: LLM, prompt: object, params: SamplingParams) -> list[int]:
    (output,) = llm.generate(prompt, params)  # type: ignore[arg-type]
    return list(output.outputs[0].token_ids)


def test_a_prompt_larger_than_the_pool_is_refused_and_holds_nobody_up(llm: LLM) -> None:
    """vllm#39734, #45414: it waited for ever, and everybody behind it."""
    loaded = llm._loaded
    engine = Engine(loaded.language_model, loaded.device, dataclasses.replace(loaded.engine_config, num_blocks=2))
    engine.start()
    events: Queue[RequestEvent] = Queue()

    def request(name: str, prompt_len: int) -> Request:
        return Request(
            request_id=name,
            prompt_ids=np.ones(prompt_len, np.int32),
            stop_position=prompt_len + 1,
            stop_ids=(),
            temperature=0.0,
            top_k=0,
            top_p=1.0,
            min_p=0.0,
            seed=0,
            events=events,
        )

    with pytest.raises(InvalidRequestError, match=r"41 tokens = 3 KV blocks of 16, but the pool has 2"):
        engine.submit(request("large", 40))
    engine.submit(request("small", 32))
    assert next(event.finish_reason for event in iter(events.pop, None) if event.finish_reason) == "length"
    engine.close()
    engine.check_integrity()


def test_bos_twice_is_told_and_a_chat_gets_it_once(device_kind: str, tmp_path: Path) -> None:
    """vllm#27515, llama-cpp-python#1501: a templated string encoded as if it had no BOS yet."""
    config = {"bos_token": "<|endoftext|>", "add_bos_token": True}
    config["chat_template"] = "{{ bos_token }}{{ messages[0].content }}"
    folder = demo_with(tmp_path / "model", tokenizer_config=config)
    one = SamplingParams(temperature=0, max_tokens=1)
    with LLM(folder, device=device_kind, **OPTIONS) as llm:
        with pytest.warns(UserWarning, match="begins with the BOS token"):
            (output,) = llm.generate("<|endoftext|>a", one)
        assert output.prompt_token_ids[:2] == (0, 0)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            (output,) = llm.chat([{"role": "user", "content": "a"}], one)
            assert output.prompt_token_ids.count(0) == 1
            (output,) = llm.generate("a", one)
            assert output.prompt_token_ids.count(0) == 1


def test_rows_of_padding_are_never_sampled(device_kind: str, tmp_path: Path) -> None:
    """NeMo-RL#237: the embedding has more rows than the tokenizer has tokens, and the model likes them."""
    folder = demo_with(tmp_path / "model", config={"vocab_size": 1083})  # no multiple of 64 either
    tensors = load_file(folder / "model.safetensors")
    table = tensors["model.embed_tokens.weight"]
    padding = np.repeat(table[:1] * 0 + 9, 59, axis=0)
    padding[::2] *= -1  # whatever the sign of the hidden state's sum, half of them win
    tensors["model.embed_tokens.weight"] = np.concatenate([table, padding])
    save_file(tensors, folder / "model.safetensors")
    with LLM(folder, device=device_kind, **OPTIONS) as padded, LLM("demo", device=device_kind, **OPTIONS) as plain:
        for params in (GREEDY, SamplingParams(temperature=5.0, seed=1, max_tokens=60, ignore_eos=True)):
            sampled = ids(padded, "ROMEO:", params)
            assert max(sampled) < 1024
            assert sampled == ids(plain, "ROMEO:", params)


@pytest.mark.parametrize(
    "tight", [{"temperature": 1e-12}, {"top_p": 1e-4}, {"top_k": 1}, {"min_p": 1.0}, {"top_p": 5e-324}]
)
def test_one_token_always_survives(llm: LLM, tight: dict[str, float]) -> None:
    """vllm#1623, TensorRT-LLM#15715: nothing was left, or a division by the temperature overflowed."""
    params = SamplingParams(seed=3, max_tokens=24, ignore_eos=True, **tight)  # type: ignore[arg-type]
    assert ids(llm, "ROMEO:", params) == ids(llm, "ROMEO:", GREEDY)


def test_ignore_eos_covers_every_end_id_and_no_stop_of_the_users(device_kind: str, tmp_path: Path) -> None:
    """vllm#4589: the second end-of-sequence id still ended the answer."""
    with LLM("demo", device=device_kind, **OPTIONS) as llm:
        whole = ids(llm, "ROMEO:", GREEDY)
    first, second = whole[3], next(token for token in whole[4:] if token not in whole[:4])
    ends = {"eos_token_id": [0, second, first]}
    folder = demo_with(tmp_path / "model", generation_config=ends)
    with LLM(folder, device=device_kind, **OPTIONS) as llm:
        asked = dataclasses.replace(GREEDY, ignore_eos=False)
        assert ids(llm, "ROMEO:", asked) == whole[: whole.index(first) + 1]
        assert ids(llm, "ROMEO:", GREEDY) == whole
        stopped = ids(llm, "ROMEO:", dataclasses.replace(GREEDY, stop_token_ids=(second,)))
        assert stopped == whole[: whole.index(second) + 1]


def test_text_streamed_and_at_once_is_the_same_down_to_a_character_cut_in_two(llm: LLM) -> None:
    """lattice#751, mlx-vlm#1845, sglang#586: held bytes were lost at the end, in one of the two paths only.

    Hot sampling gives byte tokens that are no whole characters, at the end too.
    """
    cut = 0
    for seed in range(40):
        params = SamplingParams(temperature=50.0, seed=seed, max_tokens=1 + seed % 9, ignore_eos=True)
        (output,) = llm.generate("ROMEO:", params)
        deltas = list(llm.stream("ROMEO:", params))
        text = "".join(delta.text for delta in deltas)
        assert text == output.outputs[0].text == llm.tokenizer.decode(output.outputs[0].token_ids)
        cut += text.endswith("\ufffd")
    assert cut, "no answer ended within a character: the test shows nothing"


def test_a_stop_token_that_is_plain_text_does_not_leak(llm: LLM) -> None:
    """vllm#14624."""
    whole = ids(llm, "ROMEO:", GREEDY)
    params = dataclasses.replace(GREEDY, stop_token_ids=(whole[6],))
    at = whole.index(whole[6])
    (output,) = llm.generate("ROMEO:", params)
    text = "".join(delta.text for delta in llm.stream("ROMEO:", params))
    assert text == output.outputs[0].text == llm.tokenizer.decode(whole[:at])
    assert output.outputs[0].token_ids[-1] == whole[6]


def test_hundreds_of_abandoned_streams_leave_every_slot_and_block_free(llm: LLM) -> None:
    """lmdeploy#1788: slots leaked with each aborted stream until the engine stood still.

    Left before the first token, after a few, and in the middle of an exception; 16 at a time for 4 slots.
    """
    expected = ids(llm, "ROMEO:", GREEDY)
    long = SamplingParams(temperature=0, ignore_eos=True)
    for round_number in range(8):
        streams = [llm.stream([1 + index, 2], long) for index in range(16)]
        for index, stream in enumerate(streams[:8]):
            for _ in range(index % 3):
                next(stream)
        if round_number % 2:
            for stream in streams:
                stream.close()  # type: ignore[attr-defined]
        del streams, stream
        gc.collect()
        assert ids(llm, "ROMEO:", GREEDY) == expected
    wait_until_idle(llm)
    llm.engine.check_integrity()


def wait_until_idle(llm: LLM) -> None:
    """Requests are served in order: one that has ended, with cancels before it, means that those were obeyed."""
    for _ in range(2):
        ids(llm, [1], SamplingParams(max_tokens=1))


def test_a_stream_that_nobody_reads_is_cancelled_when_it_is_dropped(llm: LLM) -> None:
    """A generator that was never begun runs no `finally`: its request went on to the end of the context."""
    llm.stream("ROMEO:", SamplingParams(temperature=0, ignore_eos=True))
    gc.collect()
    begun = []
    real = llm._builder.build

    def build(*args: Any) -> Request:
        begun.append(real(*args))
        return begun[-1]

    llm._builder.build = build  # type: ignore[method-assign]
    try:
        llm.stream("JULIET:", SamplingParams(temperature=0, ignore_eos=True))
    finally:
        llm._builder.build = real  # type: ignore[method-assign]
    gc.collect()
    wait_until_idle(llm)
    assert [request.finish_reason for request in begun] == ["abort"]


@pytest.mark.parametrize("where", ["in the loop", "while waiting"])
def test_an_interrupted_cell_leaves_the_next_one_working(llm: LLM, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A notebook keeps the traceback of the interrupted cell, and with it the stream."""
    expected = ids(llm, "ROMEO:", GREEDY)
    kept = []
    if where == "while waiting":
        real_pop = Queue.pop

        def pop(self: Queue[Any], **options: Any) -> Any:
            if threading.current_thread() is threading.main_thread():
                raise KeyboardInterrupt
            return real_pop(self, **options)

        monkeypatch.setattr(Queue, "pop", pop)
    try:
        for _ in llm.stream("ROMEO:", SamplingParams(temperature=0, ignore_eos=True)):
            raise KeyboardInterrupt
    except KeyboardInterrupt as interrupt:
        kept.append(interrupt)
    monkeypatch.undo()
    assert ids(llm, "ROMEO:", GREEDY) == expected
    kept.clear()
    gc.collect()
    wait_until_idle(llm)
    llm.engine.check_integrity()


def test_cancel_and_finish_race_to_one_end(llm: LLM) -> None:
    """Triton L0_request_cancellation: cancelled after the end, twice, and in the step of its last token."""
    for tokens in (1, 2, 3, 5):
        events: Queue[RequestEvent] = Queue()
        prompt = llm._builder.tokenize([1, 2, 3])
        request = llm._builder.build(prompt, dataclasses.replace(GREEDY, max_tokens=tokens), events)
        llm.engine.submit(request)
        seen = []
        while not seen or seen[-1].finish_reason is None:
            seen.append(events.pop(timeout=60))
            request.cancel()
        request.cancel()
        assert seen[-1].finish_reason in ("length", "abort")
        wait_until_idle(llm)
        assert len(events) == 0
    llm.engine.check_integrity()


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="only Linux tells the memory of a process")
def test_opening_and_closing_a_model_again_and_again_is_flat(device_kind: str) -> None:
    """vllm#1908, #23793: the memory of the first model was still held by the second."""
    resident, threads = [], threading.active_count()
    for _ in range(12):
        with LLM("demo", device=device_kind, max_model_len=64, max_num_seqs=2) as llm:
            llm.generate("a", SamplingParams(max_tokens=2))
        gc.collect()
        resident.append(int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE"))
    assert threading.active_count() == threads
    assert resident[-1] - resident[5] < 8 << 20, [size >> 20 for size in resident]


def test_two_processes_fill_one_cache_at_first_start(tmp_path: Path) -> None:
    """cupy#9463: one of them read what the other had half written."""
    script = """
import numpy as np
from cupy_turbo.core.stream import Stream
from cupy_turbo.device import open_device
from cupy_turbo.ops.gather_rows import gather_rows
with open_device("host") as device:
    stream = Stream.create()
    out = device.empty((2, 4), np.float32)
    x = device.upload(np.arange(12, dtype=np.float32).reshape(3, 4))
    gather_rows(out, x, device.upload(np.array([2, 0], np.int32)), stream=stream)
    print(device.fetch(out).tolist())
"""
    environment = {**os.environ, "CUPY_TURBO_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", script]
    with contextlib.ExitStack() as stack:
        running = [
            stack.enter_context(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True))
            for _ in range(2)
        ]
        outputs = [process.communicate(timeout=100)[0] for process in running]
    assert [process.returncode for process in running] == [0, 0]
    assert outputs == ["[[8.0, 9.0, 10.0, 11.0], [0.0, 1.0, 2.0, 3.0]]\n"] * 2
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and path.suffix not in (".so", ".cubin")]


def test_chunks_of_every_length_around_a_block_give_the_same(device_kind: str) -> None:
    """vllm#36580: the slots of the second chunk were wrong; prompts that end with a block, and one token beyond."""
    prompts = [[(7 * index) % 1024 for index in range(length)] for length in (15, 16, 17, 32, 33)]
    params = dataclasses.replace(GREEDY, max_tokens=4)
    answers = []
    for chunk in (1, 7, 15, 16, 17, 128):
        options = {**OPTIONS, "max_num_seqs": 1, "max_num_batched_tokens": chunk}
        with LLM("demo", device=device_kind, **options) as llm:
            answers.append([list(output.outputs[0].token_ids) for output in llm.generate(prompts, params)])
    assert all(each == answers[0] for each in answers)
