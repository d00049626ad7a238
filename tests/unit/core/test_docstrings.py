"""Every public name of core says what it promises and shows it; the examples run as doctests of this suite."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import pytest

import cupy_turbo.core

MODULES = [
    importlib.import_module(f"cupy_turbo.core.{found.name}") for found in pkgutil.iter_modules(cupy_turbo.core.__path__)
]
PUBLIC = [
    pytest.param(value, id=f"{module.__name__.rpartition('.')[2]}.{name}")
    for module in MODULES
    for name, value in vars(module).items()
    if not name.startswith("_")
    and (inspect.isclass(value) or inspect.isfunction(value))
    and value.__module__ == module.__name__
]


@pytest.mark.parametrize("value", PUBLIC)
def test_public_name_has_an_example(value: object) -> None:
    text = inspect.getdoc(value) or ""
    assert "Examples\n--------\n>>> " in text


@pytest.mark.parametrize("value", [param for param in PUBLIC if inspect.isclass(param.values[0])])
def test_public_methods_are_described(value: type) -> None:
    members = [m for name, m in vars(value).items() if not name.startswith("_")]
    undescribed = [m for m in members if callable(m) or isinstance(m, property) if not (m.__doc__ or "").strip()]
    assert undescribed == []
