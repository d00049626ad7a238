"""The project's own rules: names, packaging, one version, and a README whose commands, paths and example exist."""

from __future__ import annotations

import ast
import configparser
import fnmatch
import re
from pathlib import Path

import pytest

import cupy_turbo

ROOT = Path(__file__).resolve().parents[2]
SOURCE_FOLDERS = ("cupy_turbo", "kernels", "tests", "tools", "notebooks")
BANNED_WORDS = {"util", "utils", "helper", "helpers", "manager", "managers", "misc", "common", "info", "data", "tmp"}
ALLOWED_STEMS = {"block_manager"}  # TurboMind's term


def read_setup() -> configparser.ConfigParser:
    parser = configparser.ConfigParser()
    parser.read(ROOT / "setup.cfg", encoding="utf-8")
    return parser


def lines_of(value: str) -> list[str]:
    return [line.strip() for line in value.splitlines() if line.strip()]


def source_files() -> list[Path]:
    """Every file of the project's source folders, relative to the root, without what Python and tools leave there."""
    found = (path.relative_to(ROOT) for folder in SOURCE_FOLDERS for path in (ROOT / folder).rglob("*"))
    return sorted(
        path
        for path in found
        if (ROOT / path).is_file() and not any(part.startswith((".", "__pycache__")) for part in path.parts)
    )


def test_file_and_folder_names_say_what_they_hold() -> None:
    vague = [
        str(path)
        for path in source_files()
        for part in path.with_suffix("").parts
        if part.removeprefix("test_") not in ALLOWED_STEMS and BANNED_WORDS & set(re.split(r"[_.\-]", part.lower()))
    ]
    assert vague == []


def test_no_file_is_a_numbered_copy_of_another() -> None:
    assert [str(path) for path in source_files() if re.search(r"_(v?\d+|old|new)$", path.stem)] == []


def test_every_package_is_listed() -> None:
    listed = set(lines_of(read_setup()["options"]["packages"]))
    folders = {path.parent for path in (ROOT / "cupy_turbo").rglob("*.py")}
    assert [str(folder) for folder in folders if not (folder / "__init__.py").exists()] == []
    packages = {".".join(folder.relative_to(ROOT).parts) for folder in folders}
    assert listed == packages | {"cupy_turbo.kernels"}


@pytest.mark.parametrize(("package", "folder"), [("cupy_turbo.kernels", "kernels"), ("cupy_turbo", "cupy_turbo")])
def test_every_file_that_is_not_python_is_package_data(package: str, folder: str) -> None:
    patterns = lines_of(read_setup()["options.package_data"][package])
    files = [path.relative_to(folder) for path in source_files() if path.parts[0] == folder and path.suffix != ".py"]
    assert files, f"{folder}/ holds no package data at all"
    missed = [
        str(path)
        for path in files
        if not any(
            len(path.parts) == len(Path(pattern).parts) and fnmatch.fnmatch(str(path), pattern) for pattern in patterns
        )
    ]
    assert missed == []


def test_kernels_are_installed_inside_the_package() -> None:
    assert lines_of(read_setup()["options"]["package_dir"]) == ["cupy_turbo.kernels = kernels"]


def test_the_version_is_written_once() -> None:
    assert read_setup()["metadata"]["version"] == "attr: cupy_turbo.__version__"
    assert re.fullmatch(r"\d+\.\d+\.\d+", cupy_turbo.__version__)
    repeated = [
        name
        for name in ("setup.cfg", "pyproject.toml", "README.md", "Makefile")
        if re.search(rf"(?<![\d.]){re.escape(cupy_turbo.__version__)}(?![\d.])", (ROOT / name).read_text("utf-8"))
    ]
    assert repeated == []


def test_the_changelog_opens_with_what_is_not_released() -> None:
    headings = re.findall(r"^## \[?([^\]\s]+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), flags=re.MULTILINE)
    assert headings[0] == "Unreleased"


def readme_blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), flags=re.DOTALL)


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text("utf-8"), flags=re.MULTILINE))


def test_every_make_command_of_the_readme_is_a_target() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    named = set(re.findall(r"(?:^|`)make ([a-z][a-z-]*)", readme, flags=re.MULTILINE))
    assert {"demo", "test"} <= named <= make_targets()


def test_ci_runs_the_commands_that_people_run() -> None:
    assert lines_of((ROOT / ".ci" / "run").read_text("utf-8"))[-1] == "make lint test host-sanitize"


def test_every_folder_of_the_readmes_map_exists() -> None:
    (folder_map,) = (block for block in readme_blocks("text") if block.startswith("kernels/"))
    named = re.findall(r"^( *)(\S+/)", folder_map, flags=re.MULTILINE)
    assert len(named) > 10
    parent = ""
    for indent, name in named:
        parent = name if not indent else parent
        path = ROOT / (name if not indent else parent + name)
        assert path.is_dir(), f"README.md names the folder {path.relative_to(ROOT)}"


def test_the_readmes_python_uses_public_names() -> None:
    blocks = readme_blocks("python")
    assert blocks
    for block in blocks:
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and node.module == "cupy_turbo":
                missing = [alias.name for alias in node.names if alias.name not in cupy_turbo.__all__]
                assert missing == []
