"""Configures and builds what runs on the GPU, for the one architecture at hand and with nothing that may be missing."""

from __future__ import annotations

import dataclasses
import pathlib
import shutil
import subprocess
import time

# All that the library can do without, and the tests and the program.
OFF = ["RINGATTN_CPU", "RINGATTN_MPI", "RINGATTN_NCCL", "RINGATTN_PROGRAM", "RINGATTN_TESTS"]


class BuildFailed(Exception):
    """The text ends with what the tool printed last."""


@dataclasses.dataclass
class Built:
    program: pathlib.Path
    bridge: pathlib.Path


def architectures(capability: str) -> str:
    """RINGATTN_CUDA_ARCHITECTURES for a compute capability such as "9.0"; where it is not known, the usual ones.

    sm_90a is the only one whose instructions kernels ask for by name. Devices before 8.0 lack cp.async, without which
    no kernel compiles: they get 8.0, and an error that says so when they run it.
    """
    major, dot, minor = capability.partition(".")
    if not (dot and major.isdigit() and minor.isdigit()):
        return "80;90a"
    if capability == "9.0":
        return "90a"
    return "80" if int(major) < 8 else major + minor


def configure_command(root: pathlib.Path, folder: pathlib.Path, wanted: str, ninja: bool) -> list[str]:
    command = ["cmake", "-S", str(root), "-B", str(folder), "-DCMAKE_BUILD_TYPE=Release", "-DRINGATTN_CUDA=ON"]
    command += [f"-D{name}=OFF" for name in OFF]
    command += [f"-DRINGATTN_CUDA_ARCHITECTURES={wanted}"]
    usual = pathlib.Path("/usr/local/cuda/bin/nvcc")
    if shutil.which("nvcc") is None and usual.exists():
        command += [f"-DCMAKE_CUDA_COMPILER={usual}"]
    if ninja and not (folder / "CMakeCache.txt").exists():  # a folder keeps its generator
        command += ["-G", "Ninja"]
    return command


def build(root: pathlib.Path, folder: pathlib.Path, wanted: str, jobs: int, limit: float) -> Built:
    """Throws BuildFailed."""
    if shutil.which("cmake") is None:
        raise BuildFailed("no cmake")
    end = time.monotonic() + limit
    run(configure_command(root, folder, wanted, shutil.which("ninja") is not None), end)
    run(["cmake", "--build", str(folder), "--target", "gpu-acceptance", "--parallel", str(jobs)], end)
    made = folder / "bench" / "gpu"
    built = Built(made / "gpu-acceptance", made / "libgpu-acceptance-bridge.so")
    for path in (built.program, built.bridge):
        if not path.exists():
            raise BuildFailed(f"{path} was not built")
    return built


def run(command: list[str], end: float) -> None:
    print(" ".join(command), flush=True)
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=max(1.0, end - time.monotonic()),
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise BuildFailed(f"timed out: {' '.join(command)}\n{tail(error.output)}") from None
    if done.returncode != 0:
        raise BuildFailed(f"{' '.join(command)}\n{tail(done.stdout)}")


def tail(output: str | bytes | None, lines: int = 40) -> str:
    text = output.decode(errors="replace") if isinstance(output, bytes) else output or ""
    return "\n".join(text.splitlines()[-lines:])
