"""The notebook of the example runs completely and unchanged."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark_offload import jars
from spark_offload.session import java

NOTEBOOK = Path(__file__).parents[2] / "examples" / "history" / "history.ipynb"

_RUN = """
import sys
from pathlib import Path
import nbformat
from nbclient import NotebookClient

source, target = map(Path, sys.argv[1:])
notebook = nbformat.read(source, as_version=4)
resources = {"metadata": {"path": str(source.parent)}}
NotebookClient(notebook, timeout=300, kernel_name="python3", resources=resources).execute()
nbformat.write(notebook, target)
"""


def test_the_notebook_is_committed_without_outputs() -> None:
    cells = json.loads(NOTEBOOK.read_text())["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert code
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


@pytest.mark.timeout(600)
def test_the_notebook_runs(tmp_path: Path) -> None:
    """In separate processes: the kernel's session would be a second one in the test process."""
    if not java():
        pytest.skip("no Java: install the package openjdk-17-jre-headless")
    if jars.missing():
        pytest.skip("no Delta jars: edge-history jars")
    kernels = tmp_path / "jupyter"
    environment = {
        **os.environ,
        "JUPYTER_PATH": str(kernels / "share" / "jupyter"),
        "IPYTHONDIR": str(tmp_path / "ipython"),
    }
    subprocess.run(
        [sys.executable, "-m", "ipykernel", "install", "--prefix", kernels],
        check=True,
        capture_output=True,
        env=environment,
    )
    target = tmp_path / "run.ipynb"
    done = subprocess.run(
        [sys.executable, "-c", _RUN, NOTEBOOK, target], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    outputs = [out for cell in json.loads(target.read_text())["cells"] for out in cell.get("outputs", ())]
    pictures = [out for out in outputs if "image/png" in out.get("data", {})]
    assert len(pictures) == 5  # noise, temperatures, gaps, places, energy
    assert not [out for out in outputs if out["output_type"] == "error"]
