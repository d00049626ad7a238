"""Imports go down the layers only, CuPy enters through one file, and importing the package is quick and light."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "cupy_turbo"

# A folder may import its own layer and lower ones. What is not named (cli, server, trace, bench, testing) is on top.
LAYERS = {"core": 0, "device": 1, "ops": 2, "models": 3, "checkpoint": 3, "text": 3, "engine": 4, "api": 5}
TOP = 6
FRAMEWORKS = {"torch", "jax", "jaxlib", "triton", "tensorflow", "torch_xla"}

FILES = [pytest.param(path, id=str(path.relative_to(PACKAGE))) for path in sorted(PACKAGE.rglob("*.py"))]


def imported_names(tree: ast.AST) -> Iterator[str]:
    """Every module that the source can import, wherever in it: absolute dotted names, ``from`` names included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide the layer"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in {"importlib.import_module", "__import__"}:
            yield from (str(argument.value) for argument in node.args[:1] if isinstance(argument, ast.Constant))


def layer_of(parts: tuple[str, ...]) -> int:
    """Layer of a module given as its path inside the package, the package itself being on top."""
    return LAYERS.get(parts[0], TOP) if parts else TOP


def upward_imports(tree: ast.AST, own_layer: int) -> list[str]:
    found = []
    for name in imported_names(tree):
        root, *inside = name.split(".")
        # The version is a constant; any other name of the package itself leads to api.
        if root == "cupy_turbo" and inside != ["__version__"] and layer_of(tuple(inside)) > own_layer:
            found.append(name)
    return found


@pytest.mark.parametrize("path", FILES)
def test_imports_go_down(path: Path) -> None:
    parts = path.relative_to(PACKAGE).parts
    own_layer = layer_of(parts) if len(parts) > 1 else TOP
    assert upward_imports(ast.parse(path.read_text("utf-8")), own_layer) == []


@pytest.mark.parametrize("path", FILES)
def test_cupy_enters_through_one_file_and_frameworks_through_none(path: Path) -> None:
    roots = {name.partition(".")[0] for name in imported_names(ast.parse(path.read_text("utf-8")))}
    assert not roots & FRAMEWORKS
    if path != PACKAGE / "device" / "cuda.py":
        assert not roots & {"cupy", "cupyx", "cupy_backends"}


@pytest.mark.parametrize(
    ("layer", "source"),
    [
        ("core", "from cupy_turbo.device import open_device"),
        ("device", "import cupy_turbo.ops.gemm"),
        ("ops", "def f():\n    from cupy_turbo.models.llama import Llama"),
        ("models", "from cupy_turbo.engine import engine"),
        ("checkpoint", "from cupy_turbo import engine"),
        ("engine", "from cupy_turbo import LLM"),
        ("engine", "import importlib\nimportlib.import_module('cupy_turbo.api.llm')"),
        ("api", "from cupy_turbo.cli import main"),
    ],
)
def test_an_upward_import_is_seen(layer: str, source: str) -> None:
    assert upward_imports(ast.parse(source), LAYERS[layer]) != []


@pytest.mark.parametrize(
    ("layer", "source"),
    [
        ("core", "from cupy_turbo.core.errors import QueueClosed"),
        ("models", "from cupy_turbo.checkpoint import Checkpoint"),
        ("api", "from cupy_turbo import __version__"),
        ("api", "from cupy_turbo.engine.engine import Engine"),
    ],
)
def test_a_downward_import_is_allowed(layer: str, source: str) -> None:
    assert upward_imports(ast.parse(source), LAYERS[layer]) == []


def run_python(source: str) -> str:
    done = subprocess.run([sys.executable, "-c", source], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_is_quick() -> None:
    # Processor time, and the best of three: another program on the machine must not fail this.
    source = "import time; start = time.process_time(); import cupy_turbo; print(time.process_time() - start)"
    assert min(float(run_python(source)) for _ in range(3)) < 0.5


def test_no_module_brings_cupy_or_a_framework() -> None:
    """CuPy comes when a GPU is opened: not with the package, its public names or any single module of it."""
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.stem != "__main__"
    ]
    # Not `cuda`: cuda-bindings puts that empty package into every process, by a .pth file.
    heavy = sorted(FRAMEWORKS | {"cupy", "cupyx", "cuda.bindings"})
    source = f"""
import importlib, sys
for name in {modules}:
    importlib.import_module(name)
print(sorted(set({heavy}) & set(sys.modules)))
"""
    assert run_python(source).strip() == "[]"
