"""The processes of one contestant, and both ends of what is said between them and the script that compares.

Every process prepares a case, writes what it computes for the comparison, and then waits for its turns without using a
CPU: contestants that take turns never run at the same time.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import traceback
from typing import Any, Iterable, TextIO

import numpy as np

import attentions

HERE = pathlib.Path(__file__).resolve().parent
LAUNCH = HERE.parent.parent / "launch" / "local"
DEADLINE = 1800.0  # seconds, for one answer
DIRECTIONS = ("forward", "backward")
RESULTS = {"forward": ("out",), "backward": ("dq", "dk", "dv")}


class Failed(Exception):
    """A contestant that is missing, or that broke. The text says why."""


class Team:
    """Starts the processes of a contestant, one or several; ready when the constructor returns.

    `folder` is new and empty and belongs to the team. `cores`: one thread each, dealt to the processes.
    """

    def __init__(self, section: str, name: str, case: attentions.Case, cores: list[int], folder: pathlib.Path) -> None:
        contestant = attentions.CONTESTANTS[section][name]
        self.processes, self.cores = contestant.processes, len(cores)
        self.folder = folder
        self.lines: list[tuple[socket.socket, TextIO]] = []
        job = {
            "section": section,
            "name": name,
            "case": dataclasses.asdict(case),
            "cores": cores,
            "folder": str(folder),
        }
        ranks = [None] if contestant.mpi else range(self.processes)
        self.log = open(folder / "log", "w+", encoding="utf-8")
        with socket.socket(socket.AF_UNIX) as door:
            door.bind(str(folder / "door"))
            door.listen()
            door.settimeout(0.2)
            self.children = [self._start(job | {"rank": rank}, cores) for rank in ranks]
            try:
                self._admit(door)
                self.answers = self._hear()  # facts and the seconds of a first call, of each process
            except BaseException:
                self.close()
                raise

    def turn(self, direction: str, calls: int) -> tuple[float, float]:
        """Seconds of one call, the mean of `calls` in a row: on the clock, of the process that took longest; and of CPU
        time, of all processes together, divided by the cores they have."""
        try:
            for _, stream in self.lines:
                print(json.dumps([direction, calls]), file=stream, flush=True)
        except OSError:  # it broke in an earlier turn
            raise Failed(self._last_words()) from None
        answers = self._hear()
        return max(float(x["wall"]) for x in answers), sum(float(x["cpu"]) for x in answers) / self.cores

    def first(self, direction: str) -> float:
        return max(float(answer["first"][direction]) for answer in self.answers)

    @property
    def facts(self) -> dict[str, str]:
        return dict(self.answers[0]["facts"])

    def results(self, direction: str) -> list[attentions.Array]:
        """out, or dq, dk and dv, of the whole sequence: [rows, heads, head_dim]."""
        parts = [np.load(self.folder / f"{direction}-{rank}.npz") for rank in range(self.processes)]
        order = np.argsort(np.concatenate([part["positions"] for part in parts]))
        return [np.concatenate([part[name] for part in parts])[order] for name in RESULTS[direction]]

    def close(self) -> None:
        for connection, stream in self.lines:
            with contextlib.suppress(OSError):  # what it will never read
                stream.close()
            connection.close()
        for child in self.children:
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(child.pid, signal.SIGKILL)  # its own session: mpirun and what it started
                child.wait()
        self.log.close()

    def _start(self, job: dict[str, Any], cores: Iterable[int]) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(HERE / "team.py"), json.dumps(job)]
        if job["rank"] is None:
            command = [str(LAUNCH), "-n", str(self.processes), "--timeout", "86400", "--", *command]
        threads = str(len(list(cores)) // self.processes)
        environment = os.environ | {f"{x}_NUM_THREADS": threads for x in ("OMP", "MKL", "OPENBLAS")}
        for forced in ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"):  # OpenBLAS shall choose its kernels itself
            environment.pop(forced, None)
        return subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, start_new_session=True
        )

    def _admit(self, door: socket.socket) -> None:
        end = time.monotonic() + DEADLINE
        while len(self.lines) < self.processes:
            try:
                connection, _ = door.accept()
            except TimeoutError:
                if time.monotonic() > end or any(child.poll() is not None for child in self.children):
                    raise Failed(self._last_words()) from None
            else:
                connection.settimeout(DEADLINE)
                self.lines.append((connection, connection.makefile("rw", encoding="utf-8")))

    def _hear(self) -> list[dict[str, Any]]:
        answers = []
        for _, stream in self.lines:
            try:
                line = stream.readline()
            except TimeoutError:
                raise Failed(f"no answer within {DEADLINE:.0f} s") from None
            except OSError:
                line = ""
            if not line:
                raise Failed(self._last_words())
            answer = json.loads(line)
            if "error" in answer:
                raise Failed(answer["error"])
            answers.append(answer)
        return answers

    def _last_words(self) -> str:
        self.log.seek(0)
        lines = self.log.read().strip().splitlines()
        return lines[-1] if lines else "ended without a word"


def _serve(job: dict[str, Any], rank: int, stream: TextIO) -> None:
    contestant = attentions.CONTESTANTS[job["section"]][job["name"]]
    place = attentions.Place(
        rank=rank,
        processes=contestant.processes,
        threads=len(job["cores"]) // contestant.processes,
        folder=pathlib.Path(job["folder"]),
    )
    prepared = contestant.prepare(attentions.Case(**job["case"]), place)
    calls = {"forward": prepared.forward, "backward": prepared.backward}
    first = {}
    for direction in DIRECTIONS:
        given = calls[direction]()
        results = (given,) if direction == "forward" else given
        arrays: dict[str, Any] = dict(zip(RESULTS[direction], map(prepared.numpy, results)))
        np.savez(place.folder / f"{direction}-{rank}.npz", positions=prepared.positions, **arrays)
        start = time.perf_counter()
        calls[direction]()
        first[direction] = time.perf_counter() - start
    print(json.dumps({"facts": prepared.facts, "first": first}), file=stream, flush=True)
    for line in stream:
        direction, count = json.loads(line)
        wall, cpu = time.perf_counter(), time.process_time()
        for _ in range(count):
            calls[direction]()
        taken = {"wall": (time.perf_counter() - wall) / count, "cpu": (time.process_time() - cpu) / count}
        print(json.dumps(taken), file=stream, flush=True)


def main() -> None:
    """One process of a contestant."""
    job = json.loads(sys.argv[1])
    rank = int(os.environ["OMPI_COMM_WORLD_RANK"] if job["rank"] is None else job["rank"])
    processes = attentions.CONTESTANTS[job["section"]][job["name"]].processes
    each = len(job["cores"]) // processes
    os.sched_setaffinity(0, job["cores"][rank * each : (rank + 1) * each])
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(pathlib.Path(job["folder"]) / "door"))
        with connection.makefile("rw", encoding="utf-8") as stream:
            try:
                _serve(job, rank, stream)
            except Exception as error:
                traceback.print_exc()
                print(
                    json.dumps({"error": f"{type(error).__name__}: {error}".splitlines()[0]}), file=stream, flush=True
                )
                raise SystemExit(1) from error


if __name__ == "__main__":
    main()
