"""What every `kernels/*.cu` promises its reader: a header with the same keys, one entry, an operation and an oracle."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from cupy_turbo.device.source import KernelLibrary

PACKAGE = Path(__file__).resolve().parents[2] / "cupy_turbo"
KEYS = ["Math", "Shapes", "Variants", "Launch", "Staging", "Cost", "Source"]
LIBRARY = KernelLibrary()

each_kernel = pytest.mark.parametrize("name", LIBRARY.names())


def header_of(text: str) -> list[str]:
    """Lines of the leading comment, without the slashes."""
    lines = text.split("\n")
    stop = next(number for number, line in enumerate(lines) if not line.startswith("//"))
    return [line[2:] for line in lines[:stop]]


def code_of(text: str) -> str:
    """The text without its comments."""
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)


def operations_imported(text: str) -> set[str]:
    """Modules of cupy_turbo/ops that a module imports, and what those import in turn."""
    direct = set(re.findall(r"^\s*from cupy_turbo\.ops\.(\w+) import", text, re.MULTILINE))
    return direct.union(*(operations_imported((PACKAGE / "ops" / f"{name}.py").read_text("utf-8")) for name in direct))


@each_kernel
def test_the_header_says_what_for_and_with_what(name: str) -> None:
    header = header_of(LIBRARY.read(name).text)
    assert re.fullmatch(rf" {name} - .+\.", header[0]), "the first line is `// name - what it is for.`"
    assert header[1] == "", "a blank comment line follows"
    found = [match[1] for line in header if (match := re.match(r" ([A-Z][a-z]+) {2,}\S", line))]
    in_order = [key for key in dict.fromkeys(found) if key in KEYS]
    assert in_order == KEYS, f"keys of the header are {found}"


@each_kernel
def test_lines_and_files_stay_short(name: str) -> None:
    lines = LIBRARY.read(name).text.split("\n")
    assert len(lines) <= 251, len(lines)
    assert [number for number, line in enumerate(lines, 1) if len(line) > 120] == []


@each_kernel
def test_there_is_one_entry_of_the_files_name_and_it_is_exported_last(name: str) -> None:
    text = LIBRARY.read(name).text
    assert re.findall(r"__global__[^;{]*?\b(\w+)\s*\(\s*(?=\w+ ?\*|const|int|float)", code_of(text)) == [name]
    assert text.count('extern "C"') == 1
    assert text.endswith(f"TURBO_EXPORT({name})\n")


@each_kernel
def test_only_the_projects_headers_are_included_turbo_first(name: str) -> None:
    included = re.findall(r"^#include (.+)$", LIBRARY.read(name).text, re.MULTILINE)
    assert included[0] == '"turbo.cuh"'
    assert [file for file in included if not (LIBRARY.include_folder / file.strip('"')).is_file()] == []


@each_kernel
def test_there_is_no_assembly_and_no_switch_on_the_device(name: str) -> None:
    words = set(re.findall(r"\w+", code_of(LIBRARY.read(name).text)))
    assert not words & {"asm", "__asm__", "TURBO_CUDA", "__CUDACC__", "__CUDA_ARCH__"}


@each_kernel
def test_an_operation_of_its_name_launches_it_and_a_test_runs_that_operation(name: str) -> None:
    tree = ast.parse((PACKAGE / "ops" / f"{name}.py").read_text("utf-8"))
    functions = {node.name: ast.unparse(node) for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert ".kernel(" in functions[name]
    tests = "\n".join(path.read_text("utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    assert name in operations_imported(tests), f"no test in tests/kernels runs {name}"


@each_kernel
def test_its_oracle_exists(name: str) -> None:
    header = " ".join(line.strip() for line in header_of(LIBRARY.read(name).text))
    match = re.search(r"Oracle: (testing/\w+\.py)((?:::)?[\w, ]*)", header)
    assert match, "the header names its oracle: `Oracle: testing/<file>.py`"
    tree = ast.parse((PACKAGE / match[1]).read_text("utf-8"))
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    named = set(re.findall(r"\w+", match[2].removeprefix("::"))) if match[2].startswith("::") else set()
    assert named <= defined, f"{match[1]} does not define {sorted(named - defined)}"


def test_every_launch_is_of_the_modules_own_kernel() -> None:
    launching = [p.stem for p in (PACKAGE / "ops").glob("*.py") if re.search(r"\.kernel\(", p.read_text("utf-8"))]
    assert sorted(launching) == LIBRARY.names()
