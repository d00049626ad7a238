"""Host state of the live sequences: NumPy arrays by slot, so that a steady step needs no loop over rows."""

from __future__ import annotations

import numpy as np

from cupy_turbo.engine.request import Request


class SlotTable:
    """What the engine knows of each slot; one step ahead of what the device has finished.

    Parameters
    ----------
    num_slots : int
        Sequences alive at once.

    Attributes
    ----------
    prompt_len, stop_position : numpy.ndarray
        (S,) int32, tokens of the prompt and the length at which the sequence ends.
    computed : numpy.ndarray
        (S,) int32, tokens whose KV has been *planned*: the next step starts at this position. It runs ahead of the
        device by the batches in flight.
    in_flight : numpy.ndarray
        (S,) int32, batches under way that hold this slot. It is released only at zero, since a running step may
        still read its blocks.
    live, greedy : numpy.ndarray
        (S,) bool: a request holds the slot and has not ended; it takes the most likely token.

    Notes
    -----
    **Source:** TurboMind's `inflight_*` counters; positions replace them because every planned token is counted here.
    """

    def __init__(self, num_slots: int) -> None:
        self.prompt_len = np.zeros(num_slots, np.int32)
        self.stop_position = np.zeros(num_slots, np.int32)
        self.computed = np.zeros(num_slots, np.int32)
        self.in_flight = np.zeros(num_slots, np.int32)
        self.live = np.zeros(num_slots, bool)
        self.greedy = np.zeros(num_slots, bool)
        self.requests: list[Request | None] = [None] * num_slots
        self._slot_of: dict[Request, int] = {}
        self._free = list(range(num_slots - 1, -1, -1))

    @property
    def num_free(self) -> int:
        """Slots that no request holds."""
        return len(self._free)

    @property
    def num_held(self) -> int:
        """Slots held by live or ending requests."""
        return len(self.requests) - len(self._free)

    def admit(self, request: Request) -> int:
        """Give `request` a slot and return it."""
        slot = self._free.pop()
        self.requests[slot] = request
        self._slot_of[request] = slot
        self.prompt_len[slot] = request.num_prompt_tokens
        self.stop_position[slot] = request.stop_position
        self.computed[slot] = 0
        self.in_flight[slot] = 0
        self.live[slot] = True
        self.greedy[slot] = request.is_greedy
        return slot

    def slot_of(self, request: Request) -> int | None:
        """Slot that a live or ending request holds."""
        return self._slot_of.get(request)

    def release(self, slot: int) -> None:
        """Free a slot that has ended and that no batch in flight holds."""
        request = self.requests[slot]
        assert request is not None and not self.live[slot] and not self.in_flight[slot], slot
        del self._slot_of[request]
        self.requests[slot] = None
        self._free.append(slot)

    def decoding(self) -> np.ndarray:
        """Slots whose next token is the one they sampled last, (n,) int64 ascending.

        A sequence whose last position is already planned is left out: the token sampled there needs no KV.
        """
        ready = self.live & (self.computed >= self.prompt_len) & (self.computed < self.stop_position - 1)
        return np.flatnonzero(ready)

    def held(self) -> list[int]:
        """Slots held by live or ending requests, ascending."""
        return sorted(self._slot_of.values())
