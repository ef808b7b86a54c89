#!/usr/bin/env python3
"""Times chapters of ringattn beside PyTorch's backends, taking turns on one stream, a line of JSON a result.

Started by bench/gpu/acceptance. All get the same tensors and are timed by the same events. A turn is about 20 ms of
calls; the median of the turns counts. Whoever computes something else than the first peer has its times marked.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from typing import Any, Callable, Iterator, Optional

import machine
from bridge import Case, Refused

TURN = 0.02  # seconds
ROUNDS = 7
# Of the norms, between two bf16 results of rounding alone (2^-9 each, and rounded probabilities).
TOLERANCE = 2e-2
SLOW = 0.4  # seconds of a call after which longer sequences of the same head_dim and mask are left out
PLAIN_LIMIT = 4096  # rows up to which the plain chapter takes part: it has no tensor cores
TOKENS = 32768  # of a batch: as many sequences as make that


def cases(quick: bool) -> Iterator[Case]:
    for head_dim in [128] if quick else [128, 64, 256]:
        for seqlen in [4096, 16384] if quick else [2048, 4096, 8192, 16384, 32768]:
            for causal in (True, False):
                heads = 2048 // head_dim
                yield Case(head_dim, seqlen, causal, batch=max(1, TOKENS // seqlen), heads=heads, heads_kv=heads)
    if not quick:
        yield Case(128, 16384, True, heads=64, heads_kv=8)  # as in NVIDIA's table of cuDNN on H200


class Contest:
    """One case. `makers`: name -> what makes a contestant; `time`: seconds of a call, of so many in a row."""

    def __init__(
        self,
        case: Case,
        makers: dict[str, Callable[[Case, Any], Any]],
        tensors: Any,
        time: Callable[[Callable[[], None], int], float],
        difference: Callable[[Any, Any], float],
        peers: list[str],
        slow: Optional[dict[tuple[str, str, int, str], str]] = None,
    ) -> None:
        self.case, self.time, self.difference = case, time, difference
        self.slow = {} if slow is None else slow  # who is left out, from case to case, and why
        self.peers = peers
        self.runners: dict[str, Any] = {}
        self.why: dict[str, str] = {}  # of those who do not take part
        self.broken: set[str] = set()  # those of them whom nothing excuses
        for name, make in makers.items():
            try:
                self.runners[name] = make(case, tensors)
            except Refused as error:
                self.why[name] = str(error)
        self.reference = next((name for name in peers if name in self.runners), "")

    def lines(self) -> Iterator[dict[str, Any]]:
        names = list(self.runners) + list(self.why)
        for direction in ("forward", "backward"):
            results = self._direction(direction)
            for name in names:
                yield self._line(name, direction, results)
        for runner in self.runners.values():
            runner.close()

    def _direction(self, direction: str) -> dict[str, list[float]]:
        """Turns of everybody who gets through a first call, which is not counted."""
        calls: dict[str, int] = {}
        turns: dict[str, list[float]] = {}
        for name in list(self.runners):
            if self._key(name, direction) in self.slow:
                continue
            try:
                call = getattr(self.runners[name], direction)
                first = self.time(call, 1)
                if first > SLOW:
                    self.slow[self._key(name, direction)] = f"{self.case.seqlen} rows took {first:.1f} s"
                    turns[name] = [first]
                    continue
                calls[name] = max(1, math.ceil(TURN / max(self.time(call, 1), 1e-6)))
            except (RuntimeError, Refused) as error:
                self.why[name] = str(error).strip().splitlines()[0]
                del self.runners[name]  # a peer has no such backward; a chapter that was made has to compute
                if name not in self.peers:
                    self.broken.add(name)
        for _ in range(ROUNDS):
            for name, count in calls.items():
                seconds = self.time(getattr(self.runners[name], direction), count)
                turns.setdefault(name, []).append(seconds)
        return turns

    def _key(self, name: str, direction: str) -> tuple[str, str, int, str]:
        return name, direction, self.case.head_dim, self.case.mask

    def _line(self, name: str, direction: str, results: dict[str, list[float]]) -> dict[str, Any]:
        line: dict[str, Any] = {"part": "speed", "name": f"{name}: {self.case.name}, {direction}"}
        line |= {"contestant": name, "direction": direction, "head_dim": self.case.head_dim, "mask": self.case.mask}
        line |= {"seqlen": self.case.seqlen, "heads": self.case.heads, "heads_kv": self.case.heads_kv}
        if name not in results:
            status = "failed" if name in self.broken else "refused"
            why = self.why.get(name) or self.slow.get(self._key(name, direction), "it broke")
            return line | {"status": status, "detail": why}
        seconds = statistics.median(results[name])
        line |= self.runners[name].facts
        line |= {"status": "measured", "ms": 1e3 * seconds, "tflops": self.case.flops(direction) / seconds / 1e12}
        line["spread"] = (max(results[name]) - min(results[name])) / seconds
        if self.reference in results and name != self.reference:
            worst = self._worst(name, direction)
            line["difference"] = worst if math.isfinite(worst) else None
            if not worst <= TOLERANCE:
                line |= {"status": "failed", "detail": f"computes something else than {self.reference}"}
        return line

    def _worst(self, name: str, direction: str) -> float:
        mine, theirs = self.runners[name], self.runners[self.reference]
        if direction == "forward":
            return self.difference(mine.out, theirs.out)
        found = [self.difference(a, b) for a, b in zip(mine.gradients, theirs.gradients)]
        return math.nan if any(math.isnan(x) for x in found) else max(found)


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--bridge", required=True)
    parser.add_argument("--chapters", required=True)
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args(arguments)
    import bridge

    try:
        import contestants
    except ImportError as error:
        print(json.dumps({"part": "speed", "name": "PyTorch", "status": "refused", "detail": str(error)}), flush=True)
        return 0
    library = bridge.load(args.bridge)
    failed = False
    slow: dict[tuple[str, str, int, str], str] = {}
    with contestants.working_stream():
        for case in cases(args.quick):
            names = [x for x in args.chapters.split(",") if x != "plain" or case.seqlen <= PLAIN_LIMIT]
            peers = list(contestants.BACKENDS)
            makers = {name: contestants.maker(library, name) for name in names + peers}
            tensors = contestants.Tensors(case)
            contest = Contest(case, makers, tensors, contestants.timed, contestants.difference, peers, slow)
            lines = list(contest.lines())
            clocks = {f"gpu {name}": value for name, value in machine.clocks().items()}  # while it is still warm
            for line in lines:
                failed |= line["status"] == "failed"
                print(json.dumps(line | clocks), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
