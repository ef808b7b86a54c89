"""The bridge as Python loads it, on a machine without a GPU: it refuses, says why, and nothing is thrown through C."""

from __future__ import annotations

import os
import sys

import folder  # noqa: F401

import bridge

os.environ["CUDA_VISIBLE_DEVICES"] = ""
library = bridge.load(sys.argv[1])
for chapter, dtype, head_dim, word in (
    ("plain", "bf16", 64, "cuda"),  # the runtime has no device
    ("sm_17", "bf16", 64, "'sm_17'"),
    ("plain", "f32", 0, "head_dim"),
):
    try:
        bridge.Kernel(library, chapter, bridge.Case(head_dim, 64, True, dtype=dtype), stream=0)
        sys.exit(f"{chapter}, {dtype}, head_dim {head_dim}: not refused")
    except bridge.Refused as refused:
        print(refused)
        if word not in str(refused):
            sys.exit(f"{chapter}, {dtype}, head_dim {head_dim}: '{refused}' does not name {word}")
