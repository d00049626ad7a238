"""sample.cu: exact support, exact draws, and the distribution that they follow."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cupy_turbo.core.dtypes import int32
from cupy_turbo.core.protocols import Device
from cupy_turbo.core.stream import Stream
from cupy_turbo.ops.sample import sample
from cupy_turbo.testing import reference_sampling as reference
from cupy_turbo.testing.arrays import Guarded
from cupy_turbo.testing.examples import examples

OFF = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}


@dataclass
class Batch:
    """Rows of logits, row r in slot r unless said; parameters are given once, or once a row."""

    logits: np.ndarray
    temperature: float | np.ndarray = 1.0
    top_k: int | np.ndarray = 0
    top_p: float | np.ndarray = 1.0
    min_p: float | np.ndarray = 0.0
    seed: int | np.ndarray = 0
    positions: int | np.ndarray = 0
    slots: np.ndarray | None = None
    finished: int | np.ndarray = 0
    limit: int = field(default=0)

    def __post_init__(self) -> None:
        rows, vocab = self.logits.shape
        self.logits = self.logits.astype(np.float32)
        self.slots = np.arange(rows, dtype=np.int32) if self.slots is None else np.asarray(self.slots, np.int32)
        self.limit = self.limit or vocab
        kinds = {"temperature": np.float32, "top_k": np.int32, "top_p": np.float32, "min_p": np.float32}
        for name, kind in {**kinds, "seed": np.uint64, "positions": np.int32, "finished": np.int32}.items():
            value = np.asarray(getattr(self, name), kind)
            setattr(self, name, np.ascontiguousarray(np.broadcast_to(value, rows)))

    def arrays(self) -> list[np.ndarray]:
        """Inputs in the order of the kernel's."""
        parameters = [self.temperature, self.top_k, self.top_p, self.min_p, self.seed]
        return [self.logits, self.slots, self.positions, self.finished, *parameters]  # type: ignore[list-item]

    def draw(self, device: Device, stream: Stream, threads: int | None = None) -> np.ndarray:
        """Tokens of every row; `threads` goes past the launcher, to the kernel."""
        tokens = Guarded(device, len(self.logits), int32)
        arrays = [tokens.array, *map(device.upload, self.arrays())]
        if threads is None:
            sample(*arrays, vocab_limit=self.limit, stream=stream)
        else:
            rows, vocab = self.logits.shape
            device.kernel("sample")(rows, threads, (*arrays, vocab, self.limit), stream=stream)
        return tokens.fetch()


def support(device: Device, stream: Stream, logits: list[float], rows: int = 256, **parameters: float) -> set[int]:
    """Tokens that come up in `rows` draws."""
    batch = Batch(np.tile(np.array(logits, np.float32), (rows, 1)), seed=np.arange(rows), **parameters)
    return set(batch.draw(device, stream).tolist())


LOG = np.log(np.array([1, 8, 4, 4, 2, 1], np.float64)).tolist()  # probabilities 1/20, 8/20, 4/20 …


@pytest.mark.parametrize(
    ("parameters", "kept"),
    [
        ({}, {0, 1, 2, 3, 4, 5}),
        ({"top_k": 1}, {1}),
        ({"top_k": 2}, {1, 2, 3}),  # 2 and 3 tie
        ({"top_k": 4}, {1, 2, 3, 4}),
        ({"top_k": 5}, {0, 1, 2, 3, 4, 5}),
        ({"top_k": 1000}, {0, 1, 2, 3, 4, 5}),
        ({"top_k": -1}, {0, 1, 2, 3, 4, 5}),
        ({"top_p": 1e-4}, {1}),
        ({"top_p": 0.0}, {1}),
        ({"top_p": 0.39}, {1}),
        ({"top_p": 0.41}, {1, 2, 3}),
        ({"top_p": 0.79}, {1, 2, 3}),
        ({"top_p": 0.81}, {1, 2, 3, 4}),
        ({"top_p": 0.999999}, {0, 1, 2, 3, 4, 5}),
        ({"top_k": 2, "top_p": 0.49}, {1}),  # the share is of what top-k kept: 8 of 16
        ({"top_k": 2, "top_p": 0.51}, {1, 2, 3}),
        ({"min_p": 0.49}, {1, 2, 3}),
        ({"min_p": 0.51}, {1}),
        ({"min_p": 1.0}, {1}),
        ({"min_p": 0.24}, {1, 2, 3, 4}),
        ({"temperature": 2.0, "min_p": 0.51}, {1, 2, 3}),  # after scaling: 0.71
        ({"temperature": 0.5, "top_p": 0.61}, {1}),  # 64 of 102
        ({"temperature": 1e-12}, {1}),
        ({"temperature": 0.0}, {1}),
        ({"top_k": 4, "min_p": 0.24, "top_p": 0.9}, {1, 2, 3, 4}),
        ({"limit": 1}, {0}),
        ({"limit": 4, "top_k": 4}, {0, 1, 2, 3}),
    ],
    ids=str,
)
def test_filters_keep_exactly_these_tokens(
    device: Device, stream: Stream, parameters: dict[str, float], kept: set[int]
) -> None:
    assert support(device, stream, LOG, **parameters) == kept


def test_equal_logits_are_all_kept_by_every_filter(device: Device, stream: Stream) -> None:
    assert support(device, stream, [3.0] * 7, top_k=2, top_p=0.1, min_p=1.0) == set(range(7))


def test_a_row_is_greedy_below_a_temperature_and_drawn_above(device: Device, stream: Stream) -> None:
    assert support(device, stream, [1.0] * 3, temperature=0.99e-5) == {0}
    assert support(device, stream, [1.0] * 3, temperature=1.01e-5) == {0, 1, 2}


def test_a_crowd_of_unlikely_tokens_has_its_share(device: Device, stream: Stream) -> None:
    """Their masses, each below 32 bits, add up past 32 bits: 3.7 times the likeliest token's, which is 0.21 of all."""
    logits = np.append(0.0, np.full(40_000, np.log(1.5 * 2.0**-14)))
    assert len(support(device, stream, logits.tolist(), rows=8, top_p=0.25)) > 3
    assert support(device, stream, logits.tolist(), rows=8, top_p=0.2) == {0}


def test_minus_infinity_is_never_drawn(device: Device, stream: Stream) -> None:
    logits = [-np.inf, 0.0, -np.inf, -80.0, -np.inf]
    assert support(device, stream, logits, temperature=100.0) == {1, 3}
    assert support(device, stream, logits, temperature=100.0, top_k=4, top_p=0.9999) == {1, 3}


def test_plus_infinity_takes_everything(device: Device, stream: Stream) -> None:
    assert support(device, stream, [0.0, np.inf, 5.0, np.inf], top_p=0.9, top_k=3) == {1, 3}


@settings(max_examples=examples(80))
@given(vocab=st.integers(1, 300), rows=st.integers(0, 5), seed=st.integers(0, 2**32 - 1), data=st.data())
def test_every_draw_is_the_oracles(
    device: Device, stream: Stream, vocab: int, rows: int, seed: int, data: st.DataObject
) -> None:
    """The token is kept by the filters and wins the race, up to what float32 can tell apart."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(rows, vocab)) * data.draw(st.sampled_from([0.01, 1.0, 5.0]))
    if data.draw(st.booleans()):
        logits = logits.round(1)  # ties at the thresholds
    batch = Batch(
        logits,
        temperature=rng.choice([0.0, 0.3, 0.7, 1.0, 1.9], rows),
        top_k=rng.choice([0, 1, 3, 40, 1000], rows),
        top_p=rng.choice([1.0, 0.97, 0.9, 0.5, 1e-4], rows),
        min_p=rng.choice([0.0, 0.03, 0.3], rows),
        seed=rng.integers(0, 2**64, rows, np.uint64),
        positions=rng.integers(0, 2**31 - 1, rows),
        limit=data.draw(st.integers(1, vocab)),
    )
    for row, token in enumerate(batch.draw(device, stream)):
        parameters = [float(a[row]) for a in (batch.temperature, batch.top_p, batch.min_p)]  # type: ignore[index]
        weights = reference.sampling_weights(
            batch.logits[row, : batch.limit],
            parameters[0],
            int(batch.top_k[row]),
            *parameters[1:],  # type: ignore[index]
        )
        speeds = reference.race_speeds(weights, int(batch.seed[row]), int(batch.positions[row]))  # type: ignore[index]
        assert speeds[token] >= (1 - 1e-4) * speeds.max()


@pytest.mark.parametrize("vary", ["seed", "positions"])
@pytest.mark.parametrize(
    "parameters",
    [{}, {"temperature": 0.6}, {"top_k": 12}, {"top_p": 0.8}, {"top_k": 20, "top_p": 0.9, "min_p": 0.1}],
    ids=str,
)
def test_draws_follow_the_distribution(device: Device, stream: Stream, vary: str, parameters: dict[str, float]) -> None:
    """Chi-square at fixed seeds, over seeds at one position and over positions at one seed."""
    draws = 4000
    logits = np.random.default_rng(1).normal(size=37).astype(np.float32)
    batch = Batch(np.tile(logits, (draws, 1)), **{vary: np.arange(draws), **parameters})
    counts = np.bincount(batch.draw(device, stream), minlength=37)
    weights = reference.sampling_weights(logits, **(OFF | parameters))
    expected = draws * weights / weights.sum()
    assert not counts[expected == 0].any()
    common = expected >= 5
    pooled = np.append(expected[common], expected[~common].sum()), np.append(counts[common], counts[~common].sum())
    wanted, seen = (values[pooled[0] > 0] for values in pooled)
    statistic, freedom = float(((seen - wanted) ** 2 / wanted).sum()), len(wanted) - 1
    # Wilson & Hilferty: the cube root of a chi-square over its degrees of freedom is nearly normal.
    deviation = ((statistic / freedom) ** (1 / 3) - (1 - 2 / (9 * freedom))) / np.sqrt(2 / (9 * freedom))
    assert deviation < 4, (statistic, freedom)


def mixed_batch(rows: int, vocab: int) -> Batch:
    rng = np.random.default_rng(7)
    return Batch(
        rng.normal(size=(rows, vocab)) * 2,
        temperature=rng.choice([0.0, 0.7, 1.0], rows),
        top_k=rng.choice([0, 20], rows),
        top_p=rng.choice([1.0, 0.9], rows),
        min_p=rng.choice([0.0, 0.05], rows),
        seed=rng.integers(0, 2**64, rows, np.uint64),
        positions=rng.integers(0, 4096, rows),
    )


def test_the_draw_does_not_depend_on_row_batch_or_launch(device: Device, stream: Stream) -> None:
    batch = mixed_batch(24, 203)
    together = batch.draw(device, stream)
    order = np.random.default_rng(3).permutation(24)
    assert np.array_equal(
        Batch(
            **{**vars(batch), "logits": batch.logits[order], "slots": order, "positions": batch.positions[order]}
        ).draw(device, stream),
        together[order],
    )  # type: ignore[index]
    for row in (0, 11, 23):
        alone = Batch(**{k: v[row : row + 1] if k != "limit" else v for k, v in vars(batch).items() if k != "slots"})
        assert alone.draw(device, stream)[0] == together[row]
    for threads in (32, 64, 256, 1024):
        assert np.array_equal(batch.draw(device, stream, threads), together), threads


def test_other_seeds_and_other_positions_give_other_draws(device: Device, stream: Stream) -> None:
    logits = np.zeros((64, 1000), np.float32)
    by_seed = Batch(logits, seed=np.arange(64) * 2**40).draw(device, stream)
    by_position = Batch(logits, positions=np.arange(64)).draw(device, stream)
    assert len(set(by_seed.tolist())) > 55
    assert len(set(by_position.tolist())) > 55


def test_masked_rows_and_useless_logits_are_told(device: Device, stream: Stream) -> None:
    logits = np.zeros((6, 9), np.float32)
    logits[2, 8], logits[3], logits[4, 8] = np.nan, -np.inf, np.nan
    slots, finished = np.array([-1, 1, 2, 3, 1, 5]), np.array([0, 2, 0, 0, 0, 0])
    tokens = Batch(logits, slots=slots, finished=finished, temperature=[1, 1, 1, 0.0, 1, 0.0]).draw(device, stream)
    assert tokens[:5].tolist() == [-1, -1, -2, -2, -1]
    assert tokens[5] == 0  # greedy among equals
    assert Batch(logits[2:3], limit=8).draw(device, stream)[0] in range(8)  # the NaN is padding of the vocabulary


@pytest.mark.parametrize("vocab", [128_256, 262_144])
def test_large_vocabularies(device: Device, stream: Stream, vocab: int) -> None:
    """All alike: the greatest mass and the fullest bins that there are; then thresholds among distinct logits."""
    logits = np.zeros((1, vocab), np.float32)
    weights = np.ones(vocab)
    token = Batch(logits, seed=9, positions=3, top_p=0.5, top_k=40).draw(device, stream)[0]
    assert token == reference.race_speeds(weights, 9, 3).argmax()
    logits = np.random.default_rng(vocab).normal(size=(1, vocab)).astype(np.float32)
    for top_k, top_p in ((0, 0.3), (50, 1.0), (1000, 0.7), (0, 1.0)):
        token = Batch(logits, seed=5, positions=8, top_k=top_k, top_p=top_p).draw(device, stream)[0]
        speeds = reference.race_speeds(reference.sampling_weights(logits[0], 1.0, top_k, top_p, 0.0), 5, 8)
        assert speeds[token] >= (1 - 1e-4) * speeds.max(), (top_k, top_p)


def test_a_vocabulary_past_the_limit_is_an_error(device: Device, stream: Stream) -> None:
    with pytest.raises(ValueError, match="logits have 262145 columns, at most 262144"):
        Batch(np.zeros((1, 262_145), np.float32)).draw(device, stream)


def test_a_limit_outside_the_vocabulary_is_an_error(device: Device, stream: Stream) -> None:
    with pytest.raises(ValueError, match="vocab_limit is 4, must be from 1 to 3"):
        Batch(np.zeros((1, 3), np.float32), limit=4).draw(device, stream)
