"""Configures as bench/gpu/acceptance does, where CMake finds neither MPI nor Highway, Boost, GoogleTest or JSON."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys

import folder

import building

build = pathlib.Path(sys.argv[1])
shutil.rmtree(build, ignore_errors=True)
command = building.configure_command(folder.ROOT, build, "90a", shutil.which("ninja") is not None)
command += [f"-DCMAKE_DISABLE_FIND_PACKAGE_{x}=ON" for x in ("MPI", "hwy", "Boost", "GTest", "benchmark", "nlohmann_json")]
subprocess.run(command, check=True)
targets = subprocess.run(["cmake", "--build", str(build), "--target", "help"], check=True, capture_output=True, text=True)
if "gpu-acceptance" not in targets.stdout:
    sys.exit("no target gpu-acceptance")
