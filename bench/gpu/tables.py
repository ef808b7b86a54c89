"""Markdown from lines. A ratio is our speed over a peer's: 0.9 of cuDNN means that a call takes 1 / 0.9 of its time."""

from __future__ import annotations

import statistics
from typing import Any, Callable, Iterable, Optional

Line = dict[str, Any]
CHAPTERS = ["sm_90a", "sm_80", "plain"]
PEERS = ["cuDNN", "flash"]
# Of issue 5: chapter, peer, direction, smallest ratio, what it holds for. "flash" is FlashAttention-2.
GOALS: list[tuple[str, str, str, float, str, Callable[[Line], bool]]] = [
    ("sm_90a", "cuDNN", "forward", 0.90, "8k to 32k", lambda x: x["seqlen"] >= 8192),
    ("sm_90a", "cuDNN", "backward", 0.80, "8k to 32k", lambda x: x["seqlen"] >= 8192),
    ("sm_80", "flash", "forward", 0.90, "all", lambda x: True),
    ("sm_80", "flash", "backward", 0.90, "all", lambda x: True),
]


def table(title: str, head: list[str], rows: Iterable[list[str]]) -> str:
    rows = list(rows)
    if not rows:
        return ""
    lines = [f"## {title}\n", "| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(cell.replace("|", "/") for cell in row) + " |" for row in rows]) + "\n"


def number(value: Optional[float], form: str = ".2f") -> str:
    return "" if value is None else format(value, form)


def machine(facts: dict[str, str]) -> str:
    return table("Machine", ["what", "value"], [[name, value] for name, value in facts.items()])


def parts(found: dict[str, dict[str, Any]], lines: list[Line]) -> str:
    rows = []
    for name, part in found.items():
        counts = {s: sum(x["part"] == name and x["status"] == s for x in lines) for s in STATUSES}
        rows.append([name, part["status"]] + [str(counts[s]) for s in STATUSES] + [f"{part['seconds']:.0f}", part["why"]])
    return table("Parts", ["part", "status"] + STATUSES + ["seconds", "why"], rows)


STATUSES = ["ok", "failed", "refused", "measured"]


def failures(lines: list[Line], most: int = 40) -> str:
    wrong = [x for x in lines if x["status"] == "failed"]
    rows = [[x["part"], x.get("chapter", ""), x["name"], x.get("pass", ""), x.get("detail", "")] for x in wrong[:most]]
    if len(wrong) > most:
        rows.append(["", "", f"and {len(wrong) - most} more, in acceptance.json", "", ""])
    return table("Failed", ["part", "chapter", "what", "pass", "why"], rows)


def kernels(lines: list[Line]) -> str:
    """By chapter and pass: how many, and the error nearest to its bound."""
    groups: dict[tuple[str, str, str], list[Line]] = {}
    for x in lines:
        if x["part"] == "kernels" and "chapter" in x:
            against = "PyTorch" if x["name"].startswith("PyTorch") else "oracle"
            groups.setdefault((x["chapter"], against, x.get("pass", "")), []).append(x)
    rows = []
    for (chapter, against, direction), found in groups.items():
        counts = [str(sum(x["status"] == s for x in found)) for s in STATUSES[:3]]
        ratios = [v for x in found for k, v in x.items() if k.endswith("error/bound") and v is not None]
        rows.append([chapter, against, direction] + counts + [number(max(ratios, default=None))])
    head = ["chapter", "against", "pass", "ok", "failed", "refused", "largest error / bound"]
    return table("Kernels against float64", head, rows)


def rings(lines: list[Line]) -> str:
    rows = []
    for x in lines:
        if x["part"] != "rings" or "forward ratio" not in x:
            continue
        row = [x["name"]]
        for direction in ("forward", "backward"):
            ratio = x[f"{direction} ratio"]
            met = "" if ratio is None else " yes" if ratio <= x["target"] else " no"
            row += [number(x[f"{direction} ms, 1 rank"]), number(x[f"{direction} ms, 4 ranks"]), number(ratio, ".3f") + met]
        rows.append(row)
    head = ["case", "forward ms, 1", "4", "ratio, at most 1.05?", "backward ms, 1", "4", "ratio, at most 1.05?"]
    return table("Four logical ranks on one GPU", head, rows)


def speed_cases(lines: list[Line]) -> dict[tuple[Any, ...], dict[str, Line]]:
    """Case and direction -> contestant -> its line."""
    found: dict[tuple[Any, ...], dict[str, Line]] = {}
    for x in lines:
        if x["part"] == "speed" and "contestant" in x:
            key = (x["head_dim"], x["mask"], x["heads"], x["heads_kv"], x["seqlen"], x["direction"])
            found.setdefault(key, {})[x["contestant"]] = x
    return found


def ratio(case: dict[str, Line], ours: str, peer: str) -> Optional[float]:
    """None where one of the two was not timed, or computed something else."""
    a, b = case.get(ours, {}), case.get(peer, {})
    if a.get("status") != "measured" or b.get("status") != "measured":
        return None
    return float(a["tflops"]) / float(b["tflops"])


def speed(lines: list[Line]) -> str:
    def cell(line: Optional[Line]) -> str:
        if line is None or "tflops" not in line:
            return ""
        text = f"{line['tflops']:.0f}" if line["tflops"] >= 10 else f"{line['tflops']:.2g}"
        return text if line["status"] == "measured" else f"({text})"

    rows = []
    for key, case in sorted(speed_cases(lines).items(), key=lambda item: (item[0][5] != "forward", item[0])):
        head_dim, mask, heads, heads_kv, seqlen, direction = key
        grouped = f"{heads}/{heads_kv}" if heads != heads_kv else str(heads)
        row = [direction, str(head_dim), mask, grouped, str(seqlen)]
        row += [cell(case.get(name)) for name in CHAPTERS + PEERS]
        rows.append(row + [number(ratio(case, "sm_90a", "cuDNN")), number(ratio(case, "sm_80", "flash"))])
    head = ["pass", "head_dim", "mask", "heads", "seqlen"] + CHAPTERS + PEERS + ["sm_90a/cuDNN", "sm_80/flash"]
    return table("Speed, bf16, TFLOP/s (in brackets: computes something else)", head, rows)


def goals(lines: list[Line]) -> str:
    rows = []
    cases = speed_cases(lines)
    for ours, peer, direction, least, where, holds in GOALS:
        ratios = []
        for key, case in cases.items():
            r = ratio(case, ours, peer)
            if key[5] == direction and r is not None and holds({"seqlen": key[4]}):
                ratios.append(r)
        if ratios:
            met = f"{sum(r >= least for r in ratios)} of {len(ratios)}"
            row = [f"{ours} / {peer}, {direction}, {where}", number(least), number(min(ratios))]
            rows.append(row + [number(statistics.median(ratios)), met])
    return table("Targets", ["ratio", "at least", "smallest", "median", "met"], rows)
