"""Typed, range-checked reading of a mapping that came from a file nobody has vouched for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from cupy_turbo.core.errors import CheckpointError
from cupy_turbo.core.shown import shown


class ConfigFields:
    """Read the entries of a configuration one by one, naming the key and the file in every error.

    A key that is absent and a key that is null are the same.

    Parameters
    ----------
    values : mapping of str to object
        As `json.load` returns it.
    source : str
        Where the mapping is from, as errors should name it.
    """

    def __init__(self, values: Mapping[str, object], source: str) -> None:
        self.values = values
        self.source = source

    def has(self, name: str) -> bool:
        """Whether the key is there and not null."""
        return self.values.get(name) is not None

    def integer(self, name: str, low: int, high: int, *, default: int | None = None) -> int:
        """Return an integer in [low, high]; without a default the key is required.

        Raises
        ------
        CheckpointError
            If the key is missing, is no integer (``true`` is none), or is out of range.
        """
        value = self._get(name, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(name, f"must be an integer, got {shown(value)}")
        if not low <= value <= high:
            raise self.error(name, f"must be {low} to {high}, got {shown(value)}")
        return value

    def number(self, name: str, low: float, high: float, *, default: float | None = None) -> float:
        """Return a finite number in [low, high]; without a default the key is required.

        Raises
        ------
        CheckpointError
            If the key is missing, is no number, or is out of range.
        """
        value = self._get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(name, f"must be a number, got {shown(value)}")
        # before it becomes a float, which an integer may be too large for; NaN is in no range
        if not low <= value <= high:
            raise self.error(name, f"must be {low:g} to {high:g}, got {shown(value)}")
        return float(value)

    def boolean(self, name: str, *, default: bool) -> bool:
        """Return true or false.

        Raises
        ------
        CheckpointError
            If the key holds anything else (1 is not true).
        """
        value = self._get(name, default)
        if not isinstance(value, bool):
            raise self.error(name, f"must be true or false, got {shown(value)}")
        return value

    def text(self, name: str, *, default: str | None = None) -> str:
        """Return a string; without a default the key is required.

        Raises
        ------
        CheckpointError
            If the key is missing or holds anything else.
        """
        value = self._get(name, default)
        if not isinstance(value, str):
            raise self.error(name, f"must be a string, got {shown(value)}")
        return value

    def mapping(self, name: str) -> dict[str, object]:
        """Return a nested object, empty if the key is absent.

        Raises
        ------
        CheckpointError
            If the key holds anything else.
        """
        value = self._get(name, {})
        if not isinstance(value, dict):
            raise self.error(name, f"must be an object, got {shown(value)}")
        return cast("dict[str, object]", value)

    def error(self, name: str, problem: str) -> CheckpointError:
        """Return the error that says what is wrong with a key."""
        return CheckpointError(f"{self.source}: {name} {problem}")

    def _get(self, name: str, default: object) -> object:
        value = self.values.get(name)
        if value is None:
            value = default
        if value is None:
            raise self.error(name, "is missing")
        return value
