"""What a run has found so far: acceptance.json with every line, acceptance.md with tables; both whole at any time."""

from __future__ import annotations

import json
import math
import os
import pathlib
import time
from typing import Any, Iterable

import tables

PATIENCE = 2.0  # seconds between two writings, but for the end of a part


class Report:
    def __init__(self, folder: pathlib.Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.facts: dict[str, str] = {}
        self.parts: dict[str, dict[str, Any]] = {}
        self.lines: list[dict[str, Any]] = []
        self._written = 0.0

    def fact(self, name: str, value: str) -> None:
        self.facts[name] = value

    def part(self, name: str, status: str, seconds: float, why: str = "") -> None:
        """status: ok, failed, not run"""
        self.parts[name] = {"status": status, "seconds": round(seconds, 2), "why": why}
        self.write()

    def add(self, line: dict[str, Any]) -> None:
        """A line of a program: part, name, status (ok, failed, refused, measured) and what belongs to it."""
        for key in ("part", "name", "status"):
            if key not in line:
                line = line | {key: "failed" if key == "status" else "?"}
        self.lines.append(line)
        if time.monotonic() - self._written > PATIENCE:
            self.write()

    def failed(self) -> bool:
        return any(x["status"] == "failed" for x in list(self.parts.values()) + self.lines)

    def write(self) -> None:
        whole = {"machine": self.facts, "parts": self.parts, "lines": [finite(line) for line in self.lines]}
        self._put("acceptance.json", json.dumps(whole, indent=1, allow_nan=False) + "\n")
        self._put("acceptance.md", self.markdown())
        self._written = time.monotonic()

    def markdown(self) -> str:
        sections: Iterable[str] = [
            "# GPU acceptance\n",
            tables.machine(self.facts),
            tables.parts(self.parts, self.lines),
            tables.failures(self.lines),
            tables.kernels(self.lines),
            tables.rings(self.lines),
            tables.speed(self.lines),
            tables.goals(self.lines),
        ]
        return "\n".join(section for section in sections if section)

    def _put(self, name: str, text: str) -> None:
        """Never half: a run may be cut off while it writes."""
        new = self.folder / (name + ".new")
        new.write_text(text, encoding="utf-8")
        os.replace(new, self.folder / name)


def finite(line: dict[str, Any]) -> dict[str, Any]:
    """JSON has no NaN and no infinity."""
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in line.items()}
