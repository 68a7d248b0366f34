# SPDX-License-Identifier: Apache-2.0
"""The example notebook, run by a real kernel without a browser."""

import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

EXAMPLE = Path(__file__).resolve().parents[3] / "examples" / "notebook" / "horovod.ipynb"


@pytest.fixture
def kernel(tmp_path, monkeypatch):
    """A kernel of this very Python."""
    folder = tmp_path / "kernels" / "here"
    folder.mkdir(parents=True)
    command = f'["{sys.executable}", "-m", "ipykernel_launcher", "-f", "{{connection_file}}"]'
    (folder / "kernel.json").write_text(f'{{"argv": {command}, "display_name": "here"}}')
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    return "here"


def execute(notebook, kernel):
    NotebookClient(notebook, kernel_name=kernel, timeout=300).execute()
    texts = []
    for cell in notebook.cells:
        if cell.cell_type == "code":
            parts = [
                out.get("text") or out.get("data", {}).get("text/plain") or out.get("evalue", "")
                for out in cell.outputs
            ]
            texts.append("\n".join(parts))
    return texts


def test_example(kernel):
    texts = execute(nbformat.read(EXAMPLE, as_version=4), kernel)
    assert "[rank 0]\nrank 0 of 2\n[rank 1]\nrank 1 of 2\n" in texts[1]
    assert "[all 2 ranks]\narray([0., 2., 4.])\n" in texts[2]
    assert "[all 2 ranks]\narray([3., 1.])\n" in texts[4]
    assert "(2, True)" in texts[5]
    assert "[rank 1]" in texts[6] and 'File "<cell 4>", line 2' in texts[6]
    assert "rank 1: ValueError: only here" in texts[6]
    assert "[rank 0]\n0\n[rank 1]\n1\n" in texts[7]


def test_mistakes(kernel):
    notebook = nbformat.v4.new_notebook()
    for code in ("%load_ext horovod.notebook", "%%horovod\n1", "%hvd_push nosuch", "%hvd_pull x"):
        cell = nbformat.v4.new_code_cell(code)
        cell.metadata["tags"] = ["raises-exception"]
        notebook.cells.append(cell)
    texts = execute(notebook, kernel)
    assert "how many ranks? %%horovod -np 4" in texts[1]
    assert "no such variable: nosuch" in texts[2]
    assert "there are no ranks" in texts[3]
