"""Every deliberate mistake in the engine is found by the suite that names it; ``-s`` prints the table."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.property.mutants import Mutant, Verdict, try_mutant
from tests.property.mutants_engine import ENGINE_MUTANTS, SEARCHES


@pytest.fixture(scope="module")
def table() -> Iterator[list[Verdict]]:
    verdicts: list[Verdict] = []
    yield verdicts
    print("\n" + "\n".join(map(str, verdicts)))


@pytest.mark.parametrize("mutant", ENGINE_MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_caught(mutant: Mutant, device_kind: str, table: list[Verdict]) -> None:
    if device_kind != "host":
        pytest.skip("the searches need the host device's schedules")
    # Threads and batches under way make two searches with the same draws differ, so one that finds nothing is repeated.
    verdict = next((found for found in (try_mutant(mutant) for _ in range(2)) if found.error), None) or try_mutant(
        mutant
    )
    table.append(verdict)
    assert verdict.error is not None, f"{mutant.suite} does not notice that {mutant.name}"


@pytest.mark.parametrize("suite", ["test_ring.py", "test_phases.py"])
def test_a_search_with_threads_finds_nothing_where_nothing_is_wrong(suite: str, device_kind: str) -> None:
    if device_kind != "host":
        pytest.skip("the searches need the host device's schedules")
    SEARCHES[suite]()
