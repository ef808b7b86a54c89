"""Makes the modules of bench/gpu importable, and its script, which has no ending."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import pathlib
import sys
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
GPU = ROOT / "bench" / "gpu"
sys.dont_write_bytecode = True
sys.path.insert(0, str(GPU))


def script(name: str) -> Any:
    loader = importlib.machinery.SourceFileLoader(name + "_script", str(GPU / name))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
