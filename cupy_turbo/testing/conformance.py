"""Holding an implementation against laws, one after the other, and naming the one that it breaks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


class ConformanceError(AssertionError):
    """An implementation breaks a law.

    Parameters
    ----------
    law : str
        What does not hold.
    subject : str
        Of what.
    reason : str
        What was seen instead.

    Examples
    --------
    >>> print(ConformanceError("items leave in the order in which they came", "MyQueue", "1 came before 0"))
    MyQueue breaks the law: items leave in the order in which they came
    1 came before 0
    """

    def __init__(self, law: str, subject: str, reason: str) -> None:
        super().__init__(f"{subject} breaks the law: {law}\n{reason}".rstrip())
        self.law = law


def check_laws(subject: str, laws: Mapping[str, Callable[[T], None]], implementation: T) -> None:
    """Try each law on an implementation.

    Parameters
    ----------
    subject : str
        What to call it.
    laws : mapping of str to callable
        Each takes the implementation and raises if the law, which is its key, is broken.
    implementation : T

    Raises
    ------
    ConformanceError
        For the first law that is broken.

    Examples
    --------
    >>> def is_even(number):
    ...     assert number % 2 == 0, f"{number} is odd"
    >>> check_laws("my number", {"numbers are even": is_even}, 3)
    Traceback (most recent call last):
    cupy_turbo.testing.conformance.ConformanceError: my number breaks the law: numbers are even
    3 is odd
    """
    for law, check in laws.items():
        try:
            check(implementation)
        except ConformanceError:
            raise
        except Exception as error:
            reason = str(error) if isinstance(error, AssertionError) else f"{type(error).__name__}: {error}"
            raise ConformanceError(law, subject, reason) from error


def search(test: Callable[..., None], max_examples: int, **strategies: Any) -> None:
    """Try a test with arguments that hypothesis draws, the same in every run.

    Parameters
    ----------
    test : callable
        Raises if it fails.
    max_examples : int
        >= 1.
    **strategies
        For its arguments.

    Examples
    --------
    >>> from hypothesis import strategies as st
    >>> def is_small(number):
    ...     assert number < 7, f"{number} is not"
    >>> search(is_small, 100, number=st.integers(0, 100))
    Traceback (most recent call last):
    AssertionError: 7 is not
    ...
    """
    from hypothesis import HealthCheck, given, settings

    chosen = settings(
        max_examples=max_examples,
        derandomize=True,
        database=None,
        deadline=None,
        print_blob=False,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    chosen(given(**strategies)(test))()
