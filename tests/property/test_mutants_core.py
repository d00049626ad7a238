"""Every deliberate mistake in the core is found by the suite that names it; ``-s`` prints the table."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import pytest

from tests.property.mutants import Mutant, Verdict, try_mutant
from tests.property.mutants_core import CORE_MUTANTS

MUTANTS = CORE_MUTANTS


@pytest.fixture(scope="module")
def table() -> Iterator[list[Verdict]]:
    """Verdicts so far; printed at the end."""
    verdicts: list[Verdict] = []
    yield verdicts
    print("\n" + "\n".join(map(str, verdicts)))


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_caught(mutant: Mutant, device_kind: str, table: list[Verdict]) -> None:
    if device_kind != "host":
        pytest.skip("the mistakes are in Python and in the host device")
    verdict = try_mutant(mutant)
    table.append(verdict)
    assert verdict.error is not None, f"{mutant.suite} does not notice that {mutant.name}"


def test_every_mutant_has_a_name_of_its_own_and_a_suite_that_exists() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 25
    for suite in {mutant.suite for mutant in MUTANTS}:
        file, _, test = suite.partition("::")
        module = importlib.import_module(f"tests.property.{file.removesuffix('.py')}")
        assert callable(getattr(module, test.partition("[")[0], None)), suite


@pytest.mark.parametrize("search", {mutant.search: mutant for mutant in MUTANTS}.values(), ids=lambda m: m.suite)
def test_a_search_finds_nothing_where_nothing_is_wrong(search: Mutant, device_kind: str) -> None:
    if device_kind != "host":
        pytest.skip("the mistakes are in Python and in the host device")
    search.search()
