"""Turn a plan into the packed inputs of a batch."""

from __future__ import annotations

import numpy as np

from cupy_turbo.engine.batch import BatchData
from cupy_turbo.engine.block_manager import BlockManager
from cupy_turbo.engine.request import Request
from cupy_turbo.engine.scheduler import Plan, PrefillChunk
from cupy_turbo.engine.slots import SlotTable
from cupy_turbo.engine.step_graphs import bucket_for
from cupy_turbo.models.step import PADDING


class BatchFiller:
    """Writes the staging arena of a batch and counts its tokens as planned.

    Parameters
    ----------
    slots : SlotTable
        Read for positions and prompts; `computed` and `in_flight` advance by what is planned.
    blocks : BlockManager
        Gives each row the blocks that its new tokens need.
    block_size : int
        Tokens of a block.
    buckets : list of int
        Row counts that have a graph, ascending; empty turns graphs off.
    """

    def __init__(self, slots: SlotTable, blocks: BlockManager, *, block_size: int, buckets: list[int]) -> None:
        self._slots, self._blocks, self._block_size, self._buckets = slots, blocks, block_size, buckets

    def fill(self, batch: BatchData, plan: Plan) -> None:
        """Fill `batch`, which no copy in flight may still read, with `plan`."""
        batch.clear()
        decode, chunks = plan.decode_slots, plan.prefills
        if not chunks:
            batch.bucket = bucket_for(self._buckets, len(decode))
        rows = batch.bucket or len(decode)  # a graph's rows are padded to its bucket
        self._fill_decode(batch, decode, rows)
        for row, chunk in enumerate(chunks, rows):
            self._fill_chunk(batch, row, chunk)
        batch.num_rows = rows + len(chunks)
        self._fill_samples(batch, chunks, rows)
        self._fill_block_updates(batch, decode, chunks, rows)
        self._fill_inits(batch, plan.admitted)
        batch.held = np.array(plan.slots, np.int64)
        batch.is_greedy = bool(self._slots.greedy[batch.held].all())
        self._slots.in_flight[batch.held] += 1  # last: a batch that could not be filled is not under way

    def _fill_decode(self, batch: BatchData, decode: np.ndarray, rows: int) -> None:
        fields, count = batch.inputs.host, len(decode)
        computed = self._slots.computed[decode]
        fields["perm"][:count], fields["perm"][count:rows] = decode, PADDING
        fields["token_ids"][:count], fields["token_ids"][count:rows] = -decode - 1, 0
        fields["token_rows"][:count], fields["token_rows"][count:rows] = np.arange(count), PADDING
        fields["positions"][:count], fields["positions"][count:rows] = computed, 0
        fields["context_len"][:count], fields["context_len"][count:rows] = computed + 1, 0
        fields["query_start"][: rows + 1] = np.arange(rows + 1)
        batch.num_decode_rows = batch.num_tokens = rows

    def _fill_chunk(self, batch: BatchData, row: int, chunk: PrefillChunk) -> None:
        fields, start, count = batch.inputs.host, batch.num_tokens, chunk.stop - chunk.start
        tokens = slice(start, start + count)
        fields["perm"][row] = chunk.slot
        fields["token_ids"][tokens] = self._request(chunk.slot).prompt_ids[chunk.start : chunk.stop]
        fields["token_rows"][tokens] = row
        fields["positions"][tokens] = np.arange(chunk.start, chunk.stop)
        fields["context_len"][row] = chunk.stop
        fields["query_start"][row + 1] = tokens.stop
        batch.num_tokens = tokens.stop
        batch.max_query_len = max(batch.max_query_len, count)

    def _fill_samples(self, batch: BatchData, chunks: list[PrefillChunk], decode_rows: int) -> None:
        """Every decode row samples, and every chunk that reaches the end of its prompt."""
        fields, prompt_len = batch.inputs.host, self._slots.prompt_len
        ending = [row for row, chunk in enumerate(chunks, decode_rows) if chunk.stop == prompt_len[chunk.slot]]
        sampled = np.concatenate([np.arange(decode_rows), np.array(ending, np.int64)])
        batch.num_samples = count = len(sampled)
        fields["sample_tokens"][:count] = fields["query_start"][sampled + 1] - 1
        fields["sample_slots"][:count] = fields["perm"][sampled]
        fields["sample_positions"][:count] = fields["context_len"][sampled]

    def _fill_block_updates(
        self, batch: BatchData, decode: np.ndarray, chunks: list[PrefillChunk], decode_rows: int
    ) -> None:
        computed = self._slots.computed
        crossing = decode[computed[decode] % self._block_size == 0]  # these rows' new token opens a block
        updates = [(slot, *self._blocks.take(slot)) for slot in crossing.tolist()]
        for chunk in chunks:
            held, needed = -(-chunk.start // self._block_size), -(-chunk.stop // self._block_size)
            updates += [(chunk.slot, *self._blocks.take(chunk.slot)) for _ in range(held, needed)]
            computed[chunk.slot] = chunk.stop
        computed[decode] += 1
        count = len(updates)
        batch.num_updates = padded = max(count, batch.bucket)
        for column, name in enumerate(("update_slots", "update_indices", "update_blocks")):
            values = batch.inputs.host[name]
            values[:count], values[count:padded] = [update[column] for update in updates], PADDING

    def _fill_inits(self, batch: BatchData, admitted: list[int]) -> None:
        fields = batch.inputs.host
        batch.num_inits = len(admitted)
        for entry, slot in enumerate(admitted):
            request = self._request(slot)
            fields["init_slots"][entry] = slot
            for name in ("temperature", "top_k", "top_p", "min_p", "seed", "stop_position"):
                fields[f"init_{name}"][entry] = getattr(request, name)
            stop_ids = fields["init_stop_ids"][entry]
            stop_ids[:] = PADDING
            stop_ids[: len(request.stop_ids)] = request.stop_ids

    def _request(self, slot: int) -> Request:
        request = self._slots.requests[slot]
        assert request is not None, slot
        return request
