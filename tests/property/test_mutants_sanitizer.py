"""Every deliberate mistake in the sanitizer is found, by a program of a few steps; ``-s`` prints the table."""

from __future__ import annotations

import pytest

from tests.property.mutants import Mutant, try_mutant
from tests.property.mutants_sanitizer import SANITIZER_MUTANTS


@pytest.mark.parametrize("mutant", SANITIZER_MUTANTS, ids=lambda mutant: mutant.name)
def test_a_mutant_is_caught(mutant: Mutant, device_kind: str) -> None:
    if device_kind != "host":
        pytest.skip("the mistakes are in Python")
    verdict = try_mutant(mutant)
    print(verdict)
    assert verdict.error is not None, f"{mutant.suite} does not notice that {mutant.name}"
    assert verdict.size is not None and verdict.size <= 6
