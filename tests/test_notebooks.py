"""The notebooks of the documentation run from top to bottom, and show something."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")  # of the kernel's own packages
def test_notebook_runs(path: Path) -> None:
    for needed in ("nbclient", "ipykernel", "pyarrow"):
        if os.environ.get("CI") != "true":
            pytest.importorskip(needed)
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    assert all(cell.outputs == [] for cell in notebook.cells if cell.cell_type == "code"), "stored without outputs"
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(path.parent)}}).execute()
    outputs = [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]
    assert all(outputs)
    assert "latency.p99" in str(outputs[1])


def test_there_is_a_notebook() -> None:
    assert NOTEBOOKS
