"""The scheduling policy: decode first, then prompts, then arrivals, within the budget."""

from __future__ import annotations

import numpy as np

from cupy_turbo.core.queue import Queue
from cupy_turbo.engine.block_manager import BlockManager
from cupy_turbo.engine.request import Request
from cupy_turbo.engine.scheduler import PrefillChunk, Scheduler
from cupy_turbo.engine.slots import SlotTable
from cupy_turbo.models.step import StepLimits


def request(prompt_len: int, max_tokens: int = 4) -> Request:
    return Request(
        request_id="r",
        prompt_ids=np.zeros(prompt_len, np.int32),
        stop_position=prompt_len + max_tokens,
        stop_ids=(),
        temperature=0.0,
        top_k=0,
        top_p=1.0,
        min_p=0.0,
        seed=0,
        events=Queue(),
    )


def scheduler(*, seqs: int = 4, tokens: int = 16, blocks: int = 64, block_size: int = 16) -> Scheduler:
    limits = StepLimits(max_num_seqs=seqs, max_num_tokens=tokens, max_model_len=256, block_size=block_size)
    return Scheduler(limits, SlotTable(seqs), BlockManager(blocks, seqs))


def run(policy: Scheduler) -> list[PrefillChunk]:
    """Plan a step and count it as computed; return its chunks."""
    plan = policy.schedule()
    slots = policy._slots
    slots.computed[plan.decode_slots] += 1
    for chunk in plan.prefills:
        slots.computed[chunk.slot] = chunk.stop
    return plan.prefills


def test_a_long_prompt_runs_in_chunks_of_the_budget():
    policy = scheduler(tokens=16)
    policy.add(request(40))
    assert [run(policy) for _ in range(4)] == [
        [PrefillChunk(0, 0, 16)],
        [PrefillChunk(0, 16, 32)],
        [PrefillChunk(0, 32, 40)],
        [],
    ]


def test_decoding_rows_take_their_token_before_prompts():
    policy = scheduler(tokens=8)
    policy.add(request(3))
    run(policy)
    policy.add(request(20))
    plan = policy.schedule()
    assert plan.decode_slots.tolist() == [0]
    assert plan.prefills == [PrefillChunk(1, 0, 7)]


def test_a_begun_prompt_goes_before_a_new_one():
    policy = scheduler(tokens=8)
    policy.add(request(12))
    policy.add(request(12))
    assert run(policy) == [PrefillChunk(0, 0, 8)]
    assert run(policy) == [PrefillChunk(0, 8, 12), PrefillChunk(1, 0, 4)]


def test_a_request_waits_until_the_pool_can_promise_its_whole_length():
    policy = scheduler(blocks=3, block_size=16)
    policy.add(request(10, max_tokens=20))  # 29 tokens of KV: 2 blocks
    policy.add(request(10, max_tokens=20))
    policy.add(request(2, max_tokens=2))  # would fit, but waits its turn
    assert [chunk.slot for chunk in run(policy)] == [0]
    assert policy.num_waiting == 2
    policy._slots.live[0] = False
    policy._blocks.release(0)
    policy._slots.release(0)
    assert len(run(policy)) == 2


def test_the_last_position_is_sampled_but_never_computed():
    policy = scheduler()
    policy.add(request(3, max_tokens=2))  # positions 0 1 2, then 3 and 4 are sampled
    assert run(policy) == [PrefillChunk(0, 0, 3)]  # samples position 3
    assert policy.schedule().decode_slots.tolist() == [0]  # computes 3, samples 4
    policy._slots.computed[0] += 1
    assert not policy.schedule()
    assert policy.blocks_needed(request(15, max_tokens=2)) == 1  # 17 tokens, the last without KV
