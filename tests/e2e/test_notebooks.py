"""Every notebook runs from top to bottom on the host device and shows what is committed."""

from __future__ import annotations

from pathlib import Path

import nbclient
import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
MAX_CELLS = 15


def read(path: Path) -> nbformat.NotebookNode:
    return nbformat.read(path, as_version=4)


def code_cells(notebook: nbformat.NotebookNode) -> list[nbformat.NotebookNode]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def shown(cell: nbformat.NotebookNode) -> str:
    """What a reader sees below a cell, as text."""
    parts = [output.get("text") or output.get("data", {}).get("text/plain", "") for output in cell.outputs]
    return "".join(parts)


def test_there_is_a_quick_start() -> None:
    assert "quick_start" in [path.stem for path in NOTEBOOKS]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_short_and_was_run_in_order(path: Path) -> None:
    notebook = read(path)
    assert len(notebook.cells) < MAX_CELLS
    cells = code_cells(notebook)
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert notebook.metadata.kernelspec.name == "python3"


@pytest.mark.timeout(600)  # the first notebook of a fresh machine compiles every kernel
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_what_is_committed(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cells tagged `varies` show figures of the machine; all others must show the same everywhere."""
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path))  # no kernel of the user's: this environment's Python
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    committed, notebook = read(path), read(path)
    nbclient.NotebookClient(notebook, timeout=500, kernel_name="python3").execute()
    for before, after in zip(code_cells(committed), code_cells(notebook), strict=True):
        if "varies" not in before.metadata.get("tags", []):
            assert shown(after) == shown(before), before.source
