"""The contest of bench/gpu/speed.py with contestants that only play, and the tables that are made of its lines."""

from __future__ import annotations

import unittest
from typing import Any, Callable

import folder  # noqa: F401

import speed
import tables
import torch_check
from bridge import Case, Refused, shape_of

CASE = Case(128, 8192, True, batch=4, heads=16, heads_kv=16)


class Clock:
    """Times a call by what the contestant says that it takes, and notes the order."""

    def __init__(self) -> None:
        self.order: list[str] = []
        self.passed = 0.0

    def time(self, call: Callable[[], None], calls: int) -> float:
        before = self.passed
        for _ in range(calls):
            call()
        return (self.passed - before) / calls


class Player:
    def __init__(self, clock: Clock, name: str, seconds: float, value: float = 1.0, broken: str = "") -> None:
        self.clock, self.name, self.seconds, self.broken = clock, name, seconds, broken
        self.out, self.gradients, self.facts = value, (value, value, value), {"kernel": name}
        self.closed = False

    def forward(self) -> None:
        if self.broken == "forward":
            raise RuntimeError("illegal address\nmore of it")
        self.clock.order.append(self.name)
        self.clock.passed += self.seconds

    def backward(self) -> None:
        if self.broken == "backward":
            raise RuntimeError("no such backward")
        self.clock.order.append(self.name)
        self.clock.passed += 2 * self.seconds

    def close(self) -> None:
        self.closed = True


def refusing(case: Case, tensors: Any) -> Any:
    raise Refused("isa: 'sm_90a' does not run here")


def contest(clock: Clock, players: dict[str, Any]) -> list[dict[str, Any]]:
    makers = {
        name: (lambda case, tensors, p=player: p) if isinstance(player, Player) else player
        for name, player in players.items()
    }
    difference = lambda a, b: abs(a - b)  # noqa: E731
    return list(speed.Contest(CASE, makers, None, clock.time, difference, ["cuDNN", "flash"]).lines())


def found(lines: list[dict[str, Any]], name: str, direction: str) -> dict[str, Any]:
    return next(x for x in lines if x["contestant"] == name and x["direction"] == direction)


class Contests(unittest.TestCase):
    def test_contestants_take_turns_and_are_timed(self) -> None:
        clock = Clock()
        lines = contest(clock, {"sm_90a": Player(clock, "sm_90a", 0.04), "cuDNN": Player(clock, "cuDNN", 0.03)})
        self.assertEqual(len(lines), 4)
        turns = clock.order[4 : 4 + 2 * speed.ROUNDS]  # after two first calls each
        self.assertEqual(turns, ["sm_90a", "cuDNN"] * speed.ROUNDS)
        forward = found(lines, "sm_90a", "forward")
        self.assertEqual(forward["status"], "measured")
        self.assertAlmostEqual(forward["ms"], 40)
        self.assertAlmostEqual(forward["tflops"], CASE.flops("forward") / 0.04 / 1e12)
        self.assertAlmostEqual(found(lines, "sm_90a", "backward")["ms"], 80)
        self.assertAlmostEqual(tables.ratio({"a": forward, "b": found(lines, "cuDNN", "forward")}, "a", "b"), 0.75)

    def test_short_calls_are_repeated(self) -> None:
        clock = Clock()
        contest(clock, {"sm_80": Player(clock, "sm_80", 0.001)})
        self.assertEqual(len(clock.order), 2 + 20 * speed.ROUNDS + 2 + 10 * speed.ROUNDS)

    def test_who_is_slow_is_left_out_of_longer_cases(self) -> None:
        clock = Clock()
        slow: dict = {}
        players = {"sm_80": Player(clock, "sm_80", 0.3), "cuDNN": Player(clock, "cuDNN", 0.03)}

        def lines(case: Case) -> list[dict[str, Any]]:
            makers = {name: (lambda c, t, p=player: p) for name, player in players.items()}
            made = speed.Contest(case, makers, None, clock.time, lambda a, b: abs(a - b), ["cuDNN"], slow)
            return list(made.lines())

        first = lines(CASE)  # 0.3 s forward, 0.6 s backward
        self.assertEqual(found(first, "sm_80", "backward")["status"], "measured")
        self.assertAlmostEqual(found(first, "sm_80", "backward")["ms"], 600)
        second = lines(Case(128, 16384, True, batch=2, heads=16, heads_kv=16))
        self.assertEqual(found(second, "sm_80", "forward")["status"], "measured")
        self.assertEqual(found(second, "sm_80", "backward")["status"], "refused")
        self.assertIn("8192 rows took 0.6 s", found(second, "sm_80", "backward")["detail"])
        self.assertEqual(found(second, "cuDNN", "backward")["status"], "measured")
        self.assertEqual(found(lines(Case(64, 16384, True)), "sm_80", "backward")["status"], "measured")

    def test_a_refusal_is_told_and_the_others_go_on(self) -> None:
        clock = Clock()
        lines = contest(clock, {"sm_90a": refusing, "flash": Player(clock, "flash", 0.03)})
        self.assertEqual(found(lines, "sm_90a", "forward")["status"], "refused")
        self.assertIn("does not run here", found(lines, "sm_90a", "backward")["detail"])
        self.assertEqual(found(lines, "flash", "backward")["status"], "measured")

    def test_a_chapter_that_breaks_fails_and_a_peer_does_not(self) -> None:
        clock = Clock()
        players = {
            "sm_90a": Player(clock, "sm_90a", 0.03, broken="forward"),
            "sm_80": Player(clock, "sm_80", 0.03),
            "cuDNN": Player(clock, "cuDNN", 0.03, broken="backward"),
        }
        lines = contest(clock, players)
        self.assertEqual(found(lines, "sm_90a", "forward")["status"], "failed")
        self.assertEqual(found(lines, "sm_90a", "forward")["detail"], "illegal address")
        self.assertEqual(found(lines, "sm_90a", "backward")["status"], "failed")
        self.assertEqual(found(lines, "cuDNN", "forward")["status"], "measured")
        self.assertEqual(found(lines, "cuDNN", "backward")["status"], "refused")
        self.assertEqual(found(lines, "sm_80", "backward")["status"], "measured")

    def test_who_computes_something_else_fails(self) -> None:
        clock = Clock()
        for value in (1.1, float("nan")):
            players = {"sm_90a": Player(clock, "sm_90a", 0.03, value), "cuDNN": Player(clock, "cuDNN", 0.03)}
            lines = contest(clock, players)
            self.assertEqual(found(lines, "sm_90a", "forward")["status"], "failed")
            self.assertEqual(found(lines, "sm_90a", "backward")["status"], "failed")
            self.assertIsNone(tables.ratio({x["contestant"]: x for x in lines[:2]}, "sm_90a", "cuDNN"))
            self.assertTrue(players["sm_90a"].closed)

    def test_cases_are_what_the_issue_asks_for(self) -> None:
        every = list(speed.cases(quick=False))
        self.assertEqual({x.head_dim for x in every}, {64, 128, 256})
        self.assertEqual({x.seqlen for x in every}, {2048, 4096, 8192, 16384, 32768})
        self.assertEqual(len(every), 3 * 5 * 2 + 1)
        self.assertLess(len(list(speed.cases(quick=True))), len(every) / 5)


class Flops(unittest.TestCase):
    def test_pairs_are_counted_exactly(self) -> None:
        for case in (Case(64, 7, True), Case(64, 7, False), Case(64, 7, True, window=2), Case(64, 7, True, window=9)):
            seen = [
                (i, j)
                for i in range(7)
                for j in range(7)
                if (j <= i or not case.causal) and (case.window < 0 or i - case.window <= j)
            ]
            self.assertEqual(case.pairs, len(seen), case.name)

    def test_backward_is_two_and_a_half_times_forward(self) -> None:
        case = Case(192, 10, False, batch=2, heads=3, heads_kv=3, head_dim_v=128)
        self.assertEqual(case.flops("forward"), 2 * 100 * 320 * 6)  # 2 products of 2 flops: 4 x pairs x mean dim
        self.assertEqual(case.flops("backward"), 2.5 * case.flops("forward"))

    def test_windows_of_the_bridge(self) -> None:
        for case, window in ((Case(64, 9, False), (-1, -1)), (Case(64, 9, True), (-1, 0)), (Case(64, 9, True, window=4), (4, 0))):
            shape = shape_of(case, backward=True)
            self.assertEqual((shape.window_left, shape.window_right, shape.head_dim_v), window + (64,))


class Verdicts(unittest.TestCase):
    ONE = {name: 1.0 for name in torch_check.NAMES}

    def test_twice_the_naive_error_forward_and_three_times_backward(self) -> None:
        for name, factor in (("out", 2), ("dq", 3), ("dk", 3), ("dv", 3)):
            below = self.ONE | {name: factor * 0.999}
            above = self.ONE | {name: factor * 1.01}
            self.assertEqual(torch_check.verdict(below, self.ONE, self.ONE, 0.0)["status"], "ok")
            line = torch_check.verdict(above, self.ONE, self.ONE, 0.0)
            self.assertEqual(line["status"], "failed")
            self.assertIn(name, line["detail"])

    def test_nan_never_passes(self) -> None:
        line = torch_check.verdict(self.ONE | {"dk": float("nan")}, self.ONE, self.ONE, 1.0)
        self.assertEqual(line["status"], "failed")
        self.assertIsNone(line["dk error/bound"])


def timed(contestant: str, direction: str, seqlen: int, tflops: float, status: str = "measured") -> dict[str, Any]:
    line = {"part": "speed", "name": "x", "status": status, "contestant": contestant, "direction": direction}
    return line | {"seqlen": seqlen, "tflops": tflops, "head_dim": 128, "mask": "full", "heads": 16, "heads_kv": 16}


class Tables(unittest.TestCase):
    def test_targets_take_the_cases_that_they_hold_for(self) -> None:
        lines = [timed("cuDNN", "forward", n, 600) for n in (2048, 8192, 32768)]
        lines += [timed("sm_90a", "forward", n, t) for n, t in ((2048, 100), (8192, 552), (32768, 480))]
        text = tables.goals(lines)
        self.assertIn("| sm_90a / cuDNN, forward, 8k to 32k | 0.90 | 0.80 | 0.86 | 1 of 2 |", text)
        self.assertNotIn("backward", text)

    def test_a_wrong_result_stands_in_brackets_and_has_no_ratio(self) -> None:
        text = tables.speed([timed("cuDNN", "forward", 2048, 600), timed("sm_90a", "forward", 2048, 700, "failed")])
        self.assertIn("(700)", text)
        self.assertNotIn("1.17", text)

    def test_ring_ratios_are_judged_by_their_target(self) -> None:
        line = {"part": "rings", "name": "causal", "status": "measured", "target": 1.05}
        for direction, ratio in (("forward", 1.04), ("backward", 1.06)):
            line |= {f"{direction} ratio": ratio, f"{direction} ms, 1 rank": 10.0, f"{direction} ms, 4 ranks": 10.5}
        text = tables.rings([line])
        self.assertIn("1.040 yes", text)
        self.assertIn("1.060 no", text)

    def test_kernels_are_counted_by_chapter(self) -> None:
        base = {"part": "kernels", "name": "c", "chapter": "sm_80", "pass": "forward"}
        lines = [base | {"status": "ok", "out error/bound": 0.25}, base | {"status": "ok", "out error/bound": 0.75}]
        lines.append(base | {"status": "refused", "detail": "f32"})
        self.assertIn("| sm_80 | oracle | forward | 2 | 0 | 1 | 0.75 |", tables.kernels(lines))

    def test_bars_do_not_break_a_table(self) -> None:
        self.assertIn("a/b", tables.failures([{"part": "p", "name": "a|b", "status": "failed"}]))


if __name__ == "__main__":
    unittest.main()
