"""What nvidia-smi tells of the first GPU. Nothing is set: cards are measured as they are found."""

from __future__ import annotations

import shutil
import subprocess

FIXED = ["name", "compute_cap", "driver_version", "memory.total", "power.limit", "clocks.max.sm", "clocks.max.mem"]
CHANGING = ["clocks.sm", "clocks.mem", "power.draw", "temperature.gpu"]


def parsed(fields: list[str], line: str) -> dict[str, str]:
    """One line of `--format=csv,noheader`. Values that the card does not tell are left out."""
    values = [value.strip() for value in line.split(",")]
    if len(values) != len(fields):
        raise ValueError(f"nvidia-smi answered {len(values)} values for {len(fields)} fields: {line!r}")
    return {field: value for field, value in zip(fields, values) if not value.startswith("[")}


def asked(fields: list[str]) -> tuple[dict[str, str], str]:
    """The fields of the first GPU, or none and the reason."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return {}, "no nvidia-smi"
    command = [tool, "--id=0", f"--query-gpu={','.join(fields)}", "--format=csv,noheader"]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return {}, f"nvidia-smi: {error}"
    lines = run.stdout.strip().splitlines()
    if run.returncode != 0 or not lines:
        return {}, f"nvidia-smi: {(run.stdout + run.stderr).strip()}"
    try:
        return parsed(fields, lines[0]), ""
    except ValueError as error:
        return {}, str(error)


def gpu() -> tuple[dict[str, str], str]:
    return asked(FIXED)


def clocks() -> dict[str, str]:
    """As of now; empty where nobody tells."""
    return asked(CHANGING)[0]
