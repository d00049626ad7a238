"""What the host device finds that a GPU answers with a hang, garbage or a lost context."""

from __future__ import annotations

import numpy as np
import pytest

from cupy_turbo.core.errors import KernelError
from cupy_turbo.device import open_device
from tests.kernels.probe import PROBES, Out, Run, launch


@pytest.fixture(autouse=True)
def _host_only(device_kind: str) -> None:
    if device_kind != "host":
        pytest.skip("a GPU answers these mistakes with a hang, garbage or a lost context, not with an error")


FAULTS = {
    0: (64, "at a barrier that not all its threads reach"),
    1: (32, "in a warp collective that not all its threads reach"),
    2: (32, "barrier while other threads wait at one of another kind"),
    3: (32, "in a different collective"),
    4: (32, "mask that leaves it out"),
    5: (32, "misaligned"),
    6: (32, "not 16-byte aligned"),
    7: (32, "outside the block's shared memory"),
    8: (64, "in a warp collective that not all its threads reach"),
    9: (48, "whole warps"),
    10: (32, "at a barrier that not all its threads reach"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_mistake_ends_the_launch_and_names_its_place(run_probe: Run, fault: int) -> None:
    threads, reason = FAULTS[fault]
    with pytest.raises(KernelError, match=f"^faults: thread .* of block .*{reason}") as caught:
        run_probe("faults", 8, threads, Out(8), np.zeros(64, np.float32), 5, shared_bytes=256, FAULT=fault)
    assert caught.value.kernel == "faults"
    assert caught.value.block == (5, 0, 0)
    # The device lives on, and the same kernel runs where nothing is wrong.
    (got,) = run_probe("faults", 8, threads, Out(8), np.zeros(64, np.float32), -1, shared_bytes=256, FAULT=fault)
    assert (got == 1).all()


def test_a_missing_barrier_is_found(rng: np.random.Generator) -> None:
    values = rng.standard_normal((1, 64)).astype(np.float32)
    found = []
    for seed in range(1, 6):
        device = open_device("host", seed=seed, kernel_folders=[PROBES])
        for barrier in (0, 1):
            (got,) = launch(device, "reverse", 1, 64, Out((1, 64)), values, shared_bytes=256, BARRIER=barrier)
            found.append((barrier, np.array_equal(got, values[:, ::-1])))
    assert (0, True) not in found
    assert (1, False) not in found


def test_shared_memory_starts_poisoned_in_every_block(run_probe: Run) -> None:
    (got,) = run_probe("uninitialised", 40, 1, Out(80), shared_bytes=16)
    assert np.isnan(got).all()


def test_a_copy_that_nobody_waited_for_has_not_arrived(run_probe: Run) -> None:
    values = np.ones(3 * 32 * 4, np.float32)
    (got,) = run_probe(
        "async_copy", 1, 32, Out(values.size), values, 96, shared_bytes=values.nbytes, GROUPS=3, PENDING=1
    )
    assert np.isnan(got[2 * 32 * 4 :]).all()


def test_a_seed_decides_the_order_of_blocks_and_threads() -> None:
    def orders(seed: int) -> tuple[list[int], list[int]]:
        device = open_device("host", seed=seed, workers=1, kernel_folders=[PROBES])
        blocks, threads = launch(device, "order", 7, 96, Out(7, np.int32), Out(192, np.int32), np.zeros(3, np.int32))
        assert sorted(blocks) == list(range(7))
        assert sorted(threads[:96]) == sorted(threads[96:]) == list(range(96))
        return blocks.tolist(), threads.tolist()

    assert orders(0)[0] == list(range(7))
    assert orders(0)[1][:96] == list(range(96))
    assert orders(3) == orders(3)
    assert len({tuple(orders(seed)[0]) for seed in range(6)}) > 2
    assert len({tuple(orders(seed)[1]) for seed in range(6)}) == 6
