"""Deliberate mistakes: what one is, and whether the suite that must find it does.

`mutants_core.py` and `mutants_engine.py` hold them, `test_mutants_core.py` tries each.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, Phase, settings


@dataclass(frozen=True)
class Mutant:
    """A mistake in the product's code.

    `suite` names the test that must catch it; `search` runs that test's law with few examples and raises if it is
    broken; `put_in` makes the mistake, which leaving the patch's context undoes.
    """

    name: str
    suite: str
    search: Callable[[], None]
    put_in: Callable[[pytest.MonkeyPatch], None]


@dataclass(frozen=True)
class Verdict:
    """What a search said of a mutant: the error it ended with, None if it found nothing, and the steps to it."""

    mutant: Mutant
    error: BaseException | None

    @property
    def size(self) -> int | None:
        """Steps of the shrunk program; None where the suite has no program to shrink."""
        program = getattr(self.error, "program", None)
        if program is not None:
            return len(program)
        notes = "\n".join(getattr(self.error, "__notes__", [])).splitlines()
        steps = [line for line in notes if ".state" in line or line.startswith("state.") or " = state." in line]
        return sum("teardown" not in step for step in steps) or None

    def __str__(self) -> str:
        caught = "SURVIVES" if self.error is None else type(self.error).__name__
        return f"{self.mutant.name:<60} {self.mutant.suite:<55} {caught:<20} {self.size or '':>5}"


def few(max_examples: int, *, shrinks: bool | None = None) -> settings:
    """Settings of a search: the same examples in every run.

    Shrinking takes most of the time and is for readers of the table: by default only ``pytest -s`` shrinks.
    """
    if shrinks is None:
        shrinks = not {"-s", "--capture=no"}.isdisjoint(sys.argv)
    return settings(
        max_examples=max_examples,
        derandomize=True,
        database=None,
        deadline=None,
        print_blob=False,
        report_multiple_bugs=False,
        phases=(Phase.explicit, Phase.generate, *([Phase.shrink] if shrinks else [])),
        suppress_health_check=list(HealthCheck),
    )


def try_mutant(mutant: Mutant) -> Verdict:
    """Make the mistake, run the suite that must find it, and undo the mistake."""
    with pytest.MonkeyPatch.context() as patch:
        mutant.put_in(patch)
        try:
            mutant.search()
        except Exception as error:
            return Verdict(mutant, error)
    return Verdict(mutant, None)
