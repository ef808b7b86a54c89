#!/usr/bin/env python3
"""Compares chapters of ringattn with attention in float64 and in the same dtype, both written down in PyTorch.

Started by bench/gpu/acceptance; a line of JSON a check. The rule is that of the library: an error at most 2 times that of
the naive computation in the same dtype, 3 times for gradients, above a floor of one rounding. The error of PyTorch's
flash kernel stands beside it, where it has one. Sizes are those that a check on the host would take too long for.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from typing import Any, Iterator

from bridge import Case, Refused

UNIT = {"bf16": 2.0**-8, "f16": 2.0**-11}
NAMES = ("out", "dq", "dk", "dv")


def cases(quick: bool) -> Iterator[Case]:
    for dtype in ("bf16", "f16"):
        for head_dim, dim_v in ((64, 64), (80, 80), (96, 96), (128, 128), (192, 128), (256, 256)):
            for causal in (True, False):
                if quick and (dtype == "f16" or head_dim not in (64, 128)):
                    continue
                yield Case(head_dim, 1009, causal, batch=2, heads=4, heads_kv=4, head_dim_v=dim_v, dtype=dtype)
        yield Case(128, 2048, True, batch=1, heads=8, heads_kv=2, dtype=dtype)
        yield Case(64, 1531, True, batch=1, heads=6, heads_kv=6, dtype=dtype, window=200)


def verdict(errors: dict[str, float], naive: dict[str, float], largest: dict[str, float], unit: float) -> dict[str, Any]:
    """Status and ratios of errors to bounds. NaN never passes."""
    ratios = {}
    for name in NAMES:
        bound = (2 if name == "out" else 3) * naive[name] + unit * largest[name]
        ratios[name] = errors[name] / bound if bound > 0 else math.inf
    wrong = [name for name in NAMES if not ratios[name] <= 1]
    line: dict[str, Any] = {f"{x} error/bound": r if math.isfinite(r) else None for x, r in ratios.items()}
    if wrong:
        said = [f"{x} is off by {ratios[x]:.3g} of its bound" for x in wrong]
        return line | {"status": "failed", "detail": "; ".join(said)}
    return line | {"status": "ok"}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bridge", required=True)
    parser.add_argument("--chapters", required=True)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args(arguments)
    import bridge

    try:
        import contestants
        import written_down
    except ImportError as error:
        line = {"part": "kernels", "name": "PyTorch", "status": "refused", "detail": str(error)}
        print(json.dumps(line), flush=True)
        return 0
    library = bridge.load(args.bridge)
    chapters = args.chapters.split(",")
    names = chapters + (["flash"] if "plain" in chapters else [])  # once is enough
    failed = False
    with contestants.working_stream():
        for case in cases(args.quick):
            tensors = contestants.Tensors(case, seed=7)
            exact = written_down.attention(case, tensors, exact=True)
            naive = written_down.errors(written_down.attention(case, tensors, exact=False), exact)
            largest = {name: float(x.abs().max()) for name, x in zip(NAMES, exact)}
            for name in names:
                line: dict[str, Any] = {"part": "kernels", "name": f"PyTorch: {case.name}", "chapter": name}
                line["pass"] = "forward and backward"
                try:
                    runner = contestants.maker(library, name)(case, tensors)
                    runner.forward()
                    runner.backward()
                    runner.close()
                    errors = written_down.errors((runner.out, *runner.gradients), exact)
                    line |= verdict(errors, naive, largest, UNIT[case.dtype])
                except Refused as error:
                    line |= {"status": "refused", "detail": str(error)}
                except RuntimeError as error:
                    line |= {"status": "failed", "detail": str(error).strip().splitlines()[0]}
                if name == "flash" and line["status"] == "failed":  # theirs is a figure, not a check
                    line["status"] = "measured"
                failed |= line["status"] == "failed"
                print(json.dumps(line), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
