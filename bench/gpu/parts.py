"""The parts of a run: each a process or several, whose lines go to the report as they come, with a time limit."""

from __future__ import annotations

import dataclasses
import json
import os
import pathlib
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from typing import Any, Callable, Optional

import building
from report import Report

HERE = pathlib.Path(__file__).resolve().parent
TAIL = 30  # lines of what a process prints besides JSON that are kept


@dataclasses.dataclass
class Ended:
    code: Optional[int]  # None: it was ended at the limit
    seconds: float
    tail: list[str]

    @property
    def why(self) -> str:
        """Empty if it ended by itself with 0 or 1; 1 says that a check failed, which stands in its line."""
        if self.code is None:
            return f"ended after {self.seconds:.0f} s, its time limit"
        return "" if self.code in (0, 1) else f"exit code {self.code}: {' / '.join(self.tail[-3:])}"


def run_lines(command: list[str], limit: float, on_line: Callable[[dict[str, Any]], None]) -> Ended:
    """Runs a command; every line of its output that is a JSON object goes to on_line at once."""
    start = time.monotonic()
    said: list[str] = []
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True
    )
    lines: queue.Queue[Optional[str]] = queue.Queue()

    def read() -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                lines.put(line)
        lines.put(None)

    threading.Thread(target=read, daemon=True).start()
    code: Optional[int] = None
    try:
        while True:
            line = lines.get(timeout=max(0.0, start + limit - time.monotonic()))
            if line is None:
                code = process.wait(timeout=max(1.0, start + limit - time.monotonic()))
                break
            found = parsed(line)
            if found is None:
                said = (said + [line.rstrip()])[-TAIL:]
            else:
                on_line(found)
    except (queue.Empty, subprocess.TimeoutExpired):
        pass
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return Ended(code, time.monotonic() - start, said)


def parsed(line: str) -> Optional[dict[str, Any]]:
    if not line.startswith("{"):
        return None
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def info(program: pathlib.Path) -> dict[str, Any]:
    found: list[dict[str, Any]] = []
    ended = run_lines([str(program), "info"], 60, found.append)
    if ended.code != 0 or not found:
        return {"devices": [], "why": ended.why or "it said nothing", "runtime": 0}
    return found[0]


@dataclasses.dataclass
class Command:
    words: list[str]
    share: float  # of the part's time limit
    chapter: str = ""  # the only one that it runs


class Session:
    """Runs parts on a GPU of that compute capability (10 major + minor).

    Chapters are checked in processes of their own: one that hangs, or loses the device, takes nobody with it, and is
    left out of what runs all of them in one process.
    """

    def __init__(
        self, built: building.Built, report: Report, capability: int, quick: bool, limits: dict[str, float]
    ) -> None:
        self.built, self.report, self.capability, self.quick, self.limits = built, report, capability, quick, limits
        self.broken: dict[str, str] = {}  # chapters, and why

    def run(self, part: str) -> None:
        start = time.monotonic()
        before = len(self.report.lines)
        commands = self.commands(part)
        if not commands:
            self.report.part(part, "not run", 0, "no compute-sanitizer here")
            return
        reasons: list[str] = []
        for command in commands:
            limit = command.share * self.limits[part]
            known = len(self.report.lines)
            run = self.sanitized if part == "sanitizer" else self.checked
            ended = run(command.words, limit)
            why = ended.why
            if ended.code == 1 and not any(x["status"] == "failed" for x in self.report.lines[known:]):
                why = f"exit code 1 without a failed check: {' / '.join(ended.tail[-3:])}"  # such as a traceback
            if why:
                reasons.append(f"{command.chapter}: {why}" if command.chapter else why)
            if why and command.chapter:
                self.broken[command.chapter] = why
        mine = self.report.lines[before:]
        if not mine and not reasons:
            reasons = ["it checked nothing"]
        failed = reasons or any(line["status"] == "failed" for line in mine)
        if part == "speed":
            reasons += [f"{name} left out, it broke before" for name in self.broken]
        self.report.part(part, "failed" if failed else "ok", time.monotonic() - start, "; ".join(reasons))

    def checked(self, command: list[str], limit: float) -> Ended:
        return run_lines(command, limit, self.report.add)

    def commands(self, part: str) -> list[Command]:
        program, python = str(self.built.program), sys.executable
        quick = ["--quick"] if self.quick else []
        extent = ["--extent", "small" if self.quick else "full"]

        def with_torch(script: str, chapters: list[str]) -> list[str]:
            words = [python, str(HERE / script), "--bridge", str(self.built.bridge), "--chapters", ",".join(chapters)]
            return words + quick

        if part == "units":
            return [Command([program, "units"], 1)]
        if part == "kernels":
            chapters = self.chapters()
            share = 1 / len(chapters)
            alone = [Command([program, "kernels", "--chapters", x] + extent, 0.45 * share, x) for x in chapters]
            return alone + [Command(with_torch("torch_check.py", [x]), 0.55 * share, x) for x in chapters]
        if part == "rings":
            return [Command([program, "rings"] + extent, 1)]
        if part == "speed":
            return [Command(with_torch("speed.py", [x for x in self.chapters() if x not in self.broken]), 1)]
        tool = shutil.which("compute-sanitizer") or shutil.which("/usr/local/cuda/bin/compute-sanitizer")
        return sanitizer_commands(tool, program, self.quick) if tool else []

    def chapters(self) -> list[str]:
        """Fastest first; the same as chapters_of in kernel_cases.cpp."""
        return (["sm_90a"] if self.capability == 90 else []) + (["sm_80"] if self.capability >= 80 else []) + ["plain"]

    def sanitized(self, command: list[str], limit: float) -> Ended:
        """One line for what the tool found, beside what the program itself checks."""
        found: list[dict[str, Any]] = []
        ended = run_lines(command, limit, found.append)
        name = " ".join([command[2]] + command[6:])  # see sanitizer_commands
        self.report.add(sanitizer_line(name, ended, found))
        return ended if ended.code is None else dataclasses.replace(ended, code=0)


def sanitizer_commands(tool: str, program: str, quick: bool) -> list[Command]:
    extent = ["--extent", "tiny" if quick else "small"]
    commands = []
    for check in ("memcheck", "racecheck"):
        for what in (["units"], ["kernels"] + extent) + ((["rings", "--extent", "small"],) if check == "memcheck" else ()):
            commands.append([tool, "--tool", check, "--error-exitcode", "9", program] + what)
    return [Command(words, 1 / len(commands)) for words in commands]


def sanitizer_line(name: str, ended: Ended, found: list[dict[str, Any]]) -> dict[str, Any]:
    """From the tool's last words: ERROR SUMMARY: 3 errors; RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)"""
    summary = next((line for line in reversed(ended.tail) if "SUMMARY:" in line), "")
    counted = re.search(r"SUMMARY:\s+(\d+)", summary)
    line: dict[str, Any] = {"part": "sanitizer", "name": name, "seconds": ended.seconds, "checks": len(found)}
    wrong = [x["name"] for x in found if x.get("status") == "failed"]
    if ended.code is None:
        return line | {"status": "failed" if wrong else "measured", "detail": f"{ended.why}; {len(found)} checks done"}
    if counted is None:
        return line | {"status": "failed", "detail": "no summary: " + " / ".join(ended.tail[-3:])}
    detail = summary.replace("=", "").strip()
    if int(counted.group(1)) > 0:
        return line | {"status": "failed", "detail": detail}
    if wrong or ended.code != 0:
        return line | {"status": "failed", "detail": f"exit code {ended.code}, failed: {', '.join(wrong) or 'none'}"}
    return line | {"status": "ok", "detail": detail}
