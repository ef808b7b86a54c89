"""bench/gpu/acceptance with programs that only play a GPU: options, parts, limits, exit codes, what is left behind."""

from __future__ import annotations

import contextlib
import io
import json
import os
import pathlib
import stat
import tempfile
import time
import unittest
from unittest import mock

import folder

import building
import machine
import parts
from report import Report

acceptance = folder.script("acceptance")
DEVICE = {"name": "Played", "capability": 90, "multiprocessors": 1, "memory": 1}


def program(path: pathlib.Path, answers: dict[str, str]) -> pathlib.Path:
    """A shell script that answers each command with lines of shell."""
    cases = "".join(f"{name}) {answer} ;;\n" for name, answer in answers.items())
    path.write_text(f'#!/bin/sh\ncase "$1" in\n{cases}*) echo "command $1"; exit 2 ;;\nesac\n', encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def says(*lines: dict, then: str = "exit 0") -> str:
    return "\n".join(f"echo '{json.dumps(line)}'" for line in lines) + "\n" + then


def info(devices: list) -> str:
    return says({"driver": 0, "runtime": 13000, "why": "" if devices else "no CUDA-capable device", "devices": devices})


OK = {"part": "units", "name": "a", "status": "ok"}


class Acceptance(unittest.TestCase):
    def setUp(self) -> None:
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def run_script(self, answers: dict[str, str], *options: str) -> tuple[int, str, dict]:
        made = program(self.folder / "program", answers)
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            code = acceptance.main(
                ["--program", str(made), "--bridge", "bridge.so", "--output", str(self.folder / "out"), *options]
            )
        return code, out.getvalue(), json.loads((self.folder / "out" / "acceptance.json").read_text())

    def test_without_a_gpu_it_says_so_and_passes(self) -> None:
        code, out, found = self.run_script({"info": info([])})
        self.assertEqual(code, 0)
        self.assertIn("No GPU: no CUDA-capable device", out)
        self.assertEqual({part["status"] for part in found["parts"].values()}, {"not run"})
        self.assertIn("none", found["machine"]["gpu"])

    def test_without_a_gpu_that_is_required_it_fails(self) -> None:
        self.assertEqual(self.run_script({"info": info([])}, "--require-gpu")[0], 5)

    def test_parts_run_and_pass(self) -> None:
        code, out, found = self.run_script({"info": info([DEVICE]), "units": says(OK, OK)}, "--only", "units")
        self.assertEqual(code, 0, out)
        self.assertEqual(found["parts"]["units"]["status"], "ok")
        self.assertEqual(len(found["lines"]), 2)
        self.assertNotIn("kernels", found["parts"])

    def test_a_failed_check_fails_the_run_and_the_next_part_runs(self) -> None:
        wrong = says(OK | {"status": "failed", "detail": "product[3] is 7"}, then="exit 1")
        right = says(OK | {"part": "rings"})
        answers = {"info": info([DEVICE]), "units": wrong, "rings": right}
        code, out, found = self.run_script(answers, "--only", "units,rings")
        self.assertEqual(code, 1)
        self.assertIn("product[3] is 7", out)
        self.assertEqual(found["parts"]["units"]["status"], "failed")
        self.assertEqual(found["parts"]["rings"]["status"], "ok")

    def test_a_program_that_breaks_fails_its_part(self) -> None:
        answers = {"info": info([DEVICE]), "units": says(OK, then="echo illegal address; kill -SEGV $$")}
        code, _, found = self.run_script(answers, "--only", "units")
        self.assertEqual(code, 1)
        self.assertEqual(len(found["lines"]), 1)
        self.assertIn("exit code -11", found["parts"]["units"]["why"])
        self.assertIn("illegal address", found["parts"]["units"]["why"])

    def test_an_exit_code_without_a_failed_check_fails_its_part(self) -> None:
        answers = {"info": info([DEVICE]), "units": says(OK, then="echo Traceback; exit 1")}
        code, _, found = self.run_script(answers, "--only", "units")
        self.assertEqual(code, 1)
        self.assertIn("without a failed check: Traceback", found["parts"]["units"]["why"])

    def test_a_part_that_takes_too_long_is_ended_and_keeps_its_lines(self) -> None:
        answers = {"info": info([DEVICE]), "units": says(OK, then="sleep 60")}
        start = time.monotonic()
        code, _, found = self.run_script(answers, "--only", "units", "--limit", "units=1")
        self.assertLess(time.monotonic() - start, 30)
        self.assertEqual(code, 1)
        self.assertEqual(len(found["lines"]), 1)
        self.assertIn("time limit", found["parts"]["units"]["why"])

    def test_a_chapter_that_breaks_takes_nobody_with_it(self) -> None:
        kernels = f"""case "$3" in
sm_90a) echo illegal address; kill -SEGV $$ ;;
*) {says(OK | {"part": "kernels"})} ;;
esac"""
        torch_check = parts.Command([str(self.folder / "program"), "torch"], 0.1, "sm_80")
        asked: list[list[str]] = []
        real = parts.Session.commands

        def commands(session: parts.Session, part: str) -> list:
            found = real(session, part)
            asked.extend(x.words for x in found)
            if part == "speed":  # PyTorch may be missing here
                return [parts.Command([str(self.folder / "program"), "speed"], 1)]
            return [x for x in found if "torch_check.py" not in str(x.words)] + [torch_check]

        answers = {"info": info([DEVICE]), "kernels": kernels, "torch": says(OK), "speed": says(OK | {"part": "speed"})}
        with mock.patch.object(parts.Session, "commands", commands):
            code, _, found = self.run_script(answers, "--only", "kernels,speed")
        self.assertEqual(code, 1)
        self.assertIn("sm_90a: exit code -11", found["parts"]["kernels"]["why"])
        self.assertEqual(len(found["lines"]), 4)  # sm_80, plain, PyTorch, speed
        self.assertIn("sm_90a left out", found["parts"]["speed"]["why"])
        self.assertIn("sm_80,plain", asked[-1])

    def test_a_part_without_a_line_fails(self) -> None:
        code, _, found = self.run_script({"info": info([DEVICE]), "units": "exit 0"}, "--only", "units")
        self.assertEqual(code, 1)
        self.assertIn("checked nothing", found["parts"]["units"]["why"])

    def test_a_program_that_does_not_start_is_no_gpu(self) -> None:
        code, _, _ = self.run_script({"info": "exit 127"}, "--require-gpu")
        self.assertEqual(code, 5)

    def test_a_build_that_fails_fails_the_run(self) -> None:
        with mock.patch.object(building, "build", side_effect=building.BuildFailed("nvcc: no")):
            with contextlib.redirect_stdout(io.StringIO()) as out:
                code = acceptance.main(["--output", str(self.folder / "out")])
        self.assertEqual(code, 1)
        self.assertIn("nvcc: no", out.getvalue())
        found = json.loads((self.folder / "out" / "acceptance.json").read_text())
        self.assertEqual(found["parts"]["build"]["status"], "failed")

    def test_wrong_options_are_named(self) -> None:
        for options, word in (
            (["--only", "units,speeed"], "speeed"),
            (["--limit", "units"], "units"),
            (["--limit", "sped=3"], "sped"),
            (["--program", "x"], "--bridge"),
            (["--jobs", "0"], "--jobs"),
            (["--program", "/nowhere/x", "--bridge", "y"], "/nowhere/x"),
        ):
            with contextlib.redirect_stderr(io.StringIO()) as err, self.assertRaises(SystemExit) as ended:
                acceptance.parse(options)
            self.assertEqual(ended.exception.code, 2)
            self.assertIn(word, err.getvalue())

    def test_all_limits_fit_ten_minutes(self) -> None:
        self.assertLessEqual(sum(acceptance.LIMITS.values()), 600)


class Sanitizer(unittest.TestCase):
    def line(self, tail: list[str], code: int | None = 0, found: list | None = None) -> dict:
        return parts.sanitizer_line("memcheck units", parts.Ended(code, 1.0, tail), found or [])

    def test_a_clean_run_is_ok(self) -> None:
        self.assertEqual(self.line(["========= ERROR SUMMARY: 0 errors"])["status"], "ok")
        text = "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)"
        self.assertEqual(self.line([text])["status"], "ok")

    def test_what_the_tool_found_fails(self) -> None:
        line = self.line(["========= ERROR SUMMARY: 12 errors", "other"], code=9)
        self.assertEqual(line["status"], "failed")
        self.assertIn("12 errors", line["detail"])

    def test_what_the_program_found_fails(self) -> None:
        found = [{"name": "mma", "status": "failed"}]
        line = self.line(["========= ERROR SUMMARY: 0 errors"], code=1, found=found)
        self.assertEqual(line["status"], "failed")
        self.assertIn("mma", line["detail"])

    def test_no_summary_fails(self) -> None:
        self.assertEqual(self.line(["Device not supported"], code=1)["status"], "failed")

    def test_a_run_that_was_cut_off_is_a_figure(self) -> None:
        line = self.line([], code=None, found=[OK])
        self.assertEqual(line["status"], "measured")
        self.assertIn("1 checks done", line["detail"])

    def test_commands_name_tool_and_checks(self) -> None:
        commands = parts.sanitizer_commands("/bin/compute-sanitizer", "/bin/x", quick=True)
        self.assertAlmostEqual(sum(command.share for command in commands), 1)
        names = [" ".join([x.words[2]] + x.words[6:]) for x in commands]
        self.assertIn("memcheck kernels --extent tiny", names)
        self.assertIn("racecheck units", names)


class Building(unittest.TestCase):
    def test_architectures_are_those_of_the_device(self) -> None:
        for capability, wanted in (("9.0", "90a"), ("8.0", "80"), ("8.6", "86"), ("10.0", "100"), ("7.5", "80")):
            self.assertEqual(building.architectures(capability), wanted)
        for unknown in ("", "N/A", "9"):
            self.assertEqual(building.architectures(unknown), "80;90a")

    def test_configuring_leaves_out_what_may_be_missing(self) -> None:
        with tempfile.TemporaryDirectory() as scratch:
            made = pathlib.Path(scratch)
            command = building.configure_command(folder.ROOT, made, "90a", True)
            for word in ("-DRINGATTN_CPU=OFF", "-DRINGATTN_MPI=OFF", "-DRINGATTN_CUDA_ARCHITECTURES=90a", "Ninja"):
                self.assertIn(word, command)
            (made / "CMakeCache.txt").touch()
            self.assertNotIn("Ninja", building.configure_command(folder.ROOT, made, "90a", True))

    def test_a_failed_command_tells_its_last_words(self) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            with self.assertRaises(building.BuildFailed) as raised:
                building.run(["sh", "-c", "echo no highway; exit 3"], time.monotonic() + 60)
            self.assertIn("no highway", str(raised.exception))
            with self.assertRaises(building.BuildFailed) as raised:
                building.run(["sh", "-c", "echo begun; exec sleep 60"], time.monotonic())
            self.assertIn("timed out", str(raised.exception))


class Machine(unittest.TestCase):
    def test_fields_are_read_and_unknown_ones_left_out(self) -> None:
        self.assertEqual(
            machine.parsed(["name", "power.limit", "clocks.sm"], "NVIDIA H200, [N/A], 1980 MHz"),
            {"name": "NVIDIA H200", "clocks.sm": "1980 MHz"},
        )
        with self.assertRaises(ValueError):
            machine.parsed(["name", "power.limit"], "No devices were found")

    def test_no_tool_is_a_reason(self) -> None:
        with mock.patch.dict(os.environ, {"PATH": "/nowhere"}):
            self.assertEqual(machine.gpu(), ({}, "no nvidia-smi"))


class Reports(unittest.TestCase):
    def test_json_has_no_nan_and_lines_without_a_status_fail(self) -> None:
        with tempfile.TemporaryDirectory() as scratch, contextlib.redirect_stdout(io.StringIO()):
            report = Report(pathlib.Path(scratch) / "new" / "folder")
            report.add({"part": "units", "name": "x", "status": "ok", "ratio": float("nan")})
            self.assertFalse(report.failed())
            report.add({"part": "units", "name": "y"})
            self.assertTrue(report.failed())
            report.write()
            found = json.loads((report.folder / "acceptance.json").read_text())
        self.assertIsNone(found["lines"][0]["ratio"])
        self.assertEqual(found["lines"][1]["status"], "failed")


if __name__ == "__main__":
    unittest.main()
