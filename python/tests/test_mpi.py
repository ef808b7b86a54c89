import os
import pathlib
import shutil
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent
LOCAL = HERE.parent.parent / "launch" / "local"


def run(ranks, script):
    pytest.importorskip("mpi4py", reason="mpi4py is not installed")
    if shutil.which("mpirun") is None:
        pytest.skip("there is no mpirun")
    command = [str(LOCAL), "-n", str(ranks), "--timeout", "60", "--", sys.executable, str(script)]
    path = os.pathsep.join(p for p in sys.path if p)
    done = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_values_and_gradients_over_mpi(ranks):
    assert "ranks agree with the reference" in run(ranks, HERE / "mpi_ranks.py")


def test_example_of_the_readme(tmp_path):
    readme = (HERE.parent.parent / "README.md").read_text()
    example = tmp_path / "example.py"
    example.write_text(readme.split("```python\n")[1].split("```")[0])
    output = run(3, example)
    assert sum("out[0] = 1" in line for line in output.splitlines()) == 3
