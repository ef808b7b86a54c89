"""What bench/gpu does with PyTorch, on the CPU; skipped where there is no PyTorch."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import math
import time
import unittest
from typing import Any
from unittest import mock

import folder  # noqa: F401

import bridge
import speed
import torch_check
from bridge import Case, Refused

try:
    import torch

    import contestants
    import written_down
except ImportError:
    torch = None

SMALL = [
    Case(16, 13, False, batch=2, heads=2, heads_kv=2),
    Case(16, 13, True, batch=1, heads=4, heads_kv=2),
    Case(16, 17, True, batch=1, heads=2, heads_kv=2, window=3),
    Case(24, 11, True, batch=1, heads=2, heads_kv=2, head_dim_v=16, dtype="f16"),
]


@unittest.skipIf(torch is None, "no PyTorch")
class WrittenDown(unittest.TestCase):
    def test_exact_attention_is_the_formula(self) -> None:
        """Row by row in Python's own numbers; dv of the formula's probabilities."""
        for case in SMALL:
            t = contestants.Tensors(case, device="cpu")
            out, _, _, dv = written_down.attention(case, t, exact=True)
            group = case.heads // case.heads_kv
            want_dv = torch.zeros_like(dv)
            for b in range(case.batch):
                for h in range(case.heads):
                    for i in range(case.seqlen):
                        first = max(0, i - case.window) if case.window >= 0 else 0
                        seen = range(first, i + 1 if case.causal else case.seqlen)
                        k, v = t.k[b, :, h // group].double(), t.v[b, :, h // group].double()
                        scores = [float(t.q[b, i, h].double() @ k[j]) / math.sqrt(case.head_dim) for j in seen]
                        weights = [math.exp(s - max(scores)) for s in scores]
                        want = sum(w / sum(weights) * v[j] for w, j in zip(weights, seen))
                        self.assertLess(float((out[b, i, h] - want).abs().max()), 1e-12, case.name)
                        for w, j in zip(weights, seen):
                            want_dv[b, j, h // group] += w / sum(weights) * t.dout[b, i, h].double()
            self.assertLess(float((dv - want_dv).abs().max()), 1e-12, case.name)

    def test_the_naive_computation_passes_its_own_verdict_and_a_wrong_mask_does_not(self) -> None:
        for case in SMALL:
            t = contestants.Tensors(case, device="cpu")
            exact = written_down.attention(case, t, exact=True)
            naive = written_down.errors(written_down.attention(case, t, exact=False), exact)
            largest = {name: float(x.abs().max()) for name, x in zip(torch_check.NAMES, exact)}
            unit = torch_check.UNIT[case.dtype]
            self.assertEqual(torch_check.verdict(naive, naive, largest, unit)["status"], "ok", case.name)
            other = Case(
                case.head_dim, case.seqlen, True, case.batch, case.heads, case.heads_kv, case.head_dim_v, case.dtype, 4
            )
            wrong = written_down.errors(written_down.attention(other, t, exact=False), exact)
            self.assertEqual(torch_check.verdict(wrong, naive, largest, unit)["status"], "failed", case.name)


@unittest.skipIf(torch is None, "no PyTorch")
class Peers(unittest.TestCase):
    def test_flash_computes_what_is_written_down(self) -> None:
        for case in (Case(32, 29, True, batch=2, heads=2, heads_kv=2), Case(32, 29, False, heads=3, heads_kv=3)):
            t = contestants.Tensors(case, device="cpu")
            peer = contestants.Peer("flash", case, t)
            peer.forward()
            peer.backward()
            for mine, exact in zip((peer.out, *peer.gradients), written_down.attention(case, t, exact=True)):
                self.assertEqual(mine.shape, exact.shape)
                self.assertLess(contestants.difference(mine, exact), 1e-2)

    def test_what_a_backend_cannot_do_is_refused(self) -> None:
        for case in SMALL[2:]:
            with self.assertRaises(Refused):
                contestants.Peer("flash", case, contestants.Tensors(case, device="cpu"))

    def test_a_difference_that_holds_a_nan_is_nan(self) -> None:
        x = torch.ones(3)
        self.assertEqual(contestants.difference(x, x), 0)
        self.assertTrue(math.isnan(contestants.difference(torch.tensor([1, 2, math.nan]), x)))


def on_the_cpu(library: Any, name: str) -> Any:
    """Chapters are played by PyTorch's flash attention for CPUs, and cuDNN is missing."""

    def make(case: Case, tensors: Any) -> Any:
        if name == "cuDNN":
            raise Refused("no cuDNN on a CPU")
        return contestants.Peer("flash", case, tensors)

    return make


def by_the_clock(call: Any, calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls


@unittest.skipIf(torch is None, "no PyTorch")
class Scripts(unittest.TestCase):
    """The main functions of both scripts, with a CPU for a GPU."""

    def lines_of(self, script: Any, cases: list[Case], chapters: str) -> tuple[int, list[dict]]:
        out = io.StringIO()
        with contextlib.ExitStack() as stack:
            for where, name, what in (
                (bridge, "load", lambda path: None),
                (contestants, "maker", on_the_cpu),
                (contestants, "Tensors", functools.partial(contestants.Tensors, device="cpu")),
                (contestants, "timed", by_the_clock),
                (contestants, "working_stream", contextlib.nullcontext),
                (torch.cuda, "synchronize", lambda: None),
                (script, "cases", lambda quick: iter(cases)),
            ):
                stack.enter_context(mock.patch.object(where, name, what))
            stack.enter_context(contextlib.redirect_stdout(out))
            code = script.main(["--bridge", "x", "--chapters", chapters])
        return code, [json.loads(line) for line in out.getvalue().splitlines()]

    def test_speed_prints_a_line_for_each_contestant_and_direction(self) -> None:
        code, lines = self.lines_of(speed, [Case(32, 64, True, heads=2, heads_kv=2)], "sm_90a,plain")
        self.assertEqual(code, 0, lines)
        found = {(x["contestant"], x["direction"]): x["status"] for x in lines}
        for direction in ("forward", "backward"):
            for name in ("sm_90a", "plain", "flash"):
                self.assertEqual(found[name, direction], "measured")
            self.assertEqual(found["cuDNN", direction], "refused")

    def test_torch_check_judges_every_case(self) -> None:
        cases = [Case(32, 64, True, heads=2, heads_kv=2), Case(32, 64, True, heads=2, heads_kv=2, window=5)]
        code, lines = self.lines_of(torch_check, cases, "plain")
        self.assertEqual(code, 0, lines)
        self.assertEqual([x["status"] for x in lines], ["ok", "ok", "refused", "refused"])
        self.assertEqual([x["chapter"] for x in lines], ["plain", "flash", "plain", "flash"])


if __name__ == "__main__":
    unittest.main()
