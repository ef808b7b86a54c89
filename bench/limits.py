"""The limits that the CPU kernel is meant to reach, as cases of the program's own bench, and what is measured of them.

`bench/figures limits` prints the table. A goal is a fraction of the peak that the same run has measured: of fused
multiply-adds, or of the dot-product instruction where the kernel uses that for bf16 (the column "peak" shows which).
"""
import json
import math
import os
import re
import statistics
import subprocess
import sys

# Lengths of 64 documents, drawn once from 100 to 700 (seed 4) and written out, so that nobody's generator matters.
DOCUMENTS = (
    341, 410, 205, 505, 590, 258, 192, 168, 120, 511, 662, 396, 160, 327, 632, 649, 468, 383, 276, 208, 368, 319,
    126, 366, 378, 298, 268, 417, 396, 481, 188, 445, 497, 618, 354, 282, 353, 584, 386, 191, 660, 407, 107, 398,
    686, 419, 620, 299, 523, 533, 395, 541, 562, 265, 338, 412, 365, 144, 183, 147, 573, 387, 631, 647,
)
OFFSETS = [sum(DOCUMENTS[:i]) for i in range(len(DOCUMENTS) + 1)]
HEADS = "--num-heads 8 --head-dim 128"


def case(name, forward, backward, arguments, **rest):
    return {"name": name, "goals": {"forward": forward, "backward": backward}, "arguments": arguments, **rest}


def dense(name, length, goals, dtype="f32", head_dim=128, isa=None):
    """Full and causal of one length."""
    forced = f" --isa {isa}" if isa else ""
    shape = f"--seqlen {length} --num-heads 8 --head-dim {head_dim} --dtype {dtype}{forced}"
    return [case(f"{name}, {mask}", *goals[mask], f"{shape} --mask {mask}", isa=isa) for mask in goals]


CASES = [
    *dense("fp32, L=8192", 8192, {"full": (0.96, 0.93), "causal": (0.94, 0.92)}),
    *dense("fp32, L=2048", 2048, {"full": (0.93, 0.88), "causal": (0.90, 0.85)}),
    *dense("fp32, L=512", 512, {"full": (0.88, 0.80), "causal": (0.78, 0.70)}),
    *dense("bf16, L=8192", 8192, {"full": (0.92, 0.85), "causal": (0.90, 0.82)}, dtype="bf16"),
    *dense("bf16, L=1024", 1024, {"full": (0.80, 0.70), "causal": (0.70, 0.60)}, dtype="bf16"),
    *dense("fp32, D=64, L=4096", 4096, {"full": (0.92, 0.88)}, head_dim=64),
    *dense("fp32, D=256, L=4096", 4096, {"full": (0.94, 0.90)}, head_dim=256),
    *dense("fp32, D=80, L=4096", 4096, {"full": (0.90, 0.86)}, head_dim=80),
    *dense("AVX2, fp32, L=8192", 8192, {"full": (0.90, 0.86)}, isa="AVX2"),
    case("GQA 32/8 heads, fp32, L=4096, causal", 0.93, 0.90,
         "--seqlen 4096 --num-heads 32 --num-heads-kv 8 --head-dim 128 --mask causal"),
    case("window of 1024 keys, causal, fp32, L=16384", 0.88, 0.82, f"--seqlen 16384 {HEADS} --window 1023,0"),
    case("64 documents of 100 to 700, fp32, full", 0.80, 0.72,
         f"--seqlen {OFFSETS[-1]} {HEADS} --mask full --cu-seqlens {','.join(map(str, OFFSETS))}"),
    # No run of the program shows one hop alone: bench_kernels times attend on the second block, with the state that
    # the first one left.
    case("hop pair, fp32, L=2048 a rank", 0.94, 0.90, f"--seqlen 2048 {HEADS}", hop_pair=True),
]


def flops_of(program, arguments):
    """FLOPs of a case, by direction, and the FMA peak of a thread: the plan knows both."""
    wanted = re.sub(r"--isa \S+", "", arguments)
    command = [program, "plan", "--ranks", "1", "--threads", "1", "--json", "-"] + wanted.split()
    plan = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[0])
    return ({"forward": plan["flops"], "backward": plan["backward"]["flops"]},
            plan["estimate"]["fma_peak_tflops"] * 1e12)


def hop_pair(bench_kernels, direction, threads):
    """(fraction, peak in GFLOP/s) of the second block."""
    suffix = "/backward" if direction == "backward" else ""
    name = f"^hop_pair/auto/f32/.*/t{threads}{suffix}/min_time"
    command = [bench_kernels, f"--benchmark_filter={name}", "--benchmark_format=json"]
    result = subprocess.run(command, capture_output=True, text=True)
    found = json.loads(result.stdout)["benchmarks"] if result.returncode == 0 and result.stdout.strip() else []
    if len(found) != 1:
        sys.exit(f"bench/figures: {' '.join(command)}: {len(found)} benchmarks, 1 expected\n{result.stderr}")
    return found[0]["of_peak"], found[0]["peak"]


def through_program(bench, arguments, direction, threads, iterations):
    """(fraction, peak in GFLOP/s) of one run of the program. Whatever its peak is of, rate and fraction tell it."""
    r = bench(f"{arguments} --direction {direction} --iterations {iterations} --warmup 1 --check-rows 2",
              threads=threads)
    return r["fraction_of_peak"], r["tflops_per_rank"] / r["fraction_of_peak"] * 1e3


# A run repeats its iteration until this many seconds have passed, and has 0.7 s of its own: tensors, peaks, check.
RUN_SECONDS, OVERHEAD_SECONDS, ASSUMED_FRACTION = 2.0, 0.7, 0.8


def planned_rows(program, isas, only):
    """One row for each case, direction and number of threads, with its iterations and the seconds of a run."""
    rows, skipped = [], []
    for c in CASES:
        if not re.search(only, c["name"]):
            continue
        if c.get("isa") and c["isa"] not in isas:
            skipped.append(f"{c['name']}: this machine or build has no {c['isa']}")
            continue
        flops, peak = flops_of(program, c["arguments"])
        for direction in ("forward", "backward"):
            for threads in (1, 2):
                once = flops[direction] / (peak * threads * ASSUMED_FRACTION)
                iterations = max(1, min(50, round(RUN_SECONDS / once)))
                repeats = (iterations + 1) * once + (once if direction == "backward" else 0)
                rows.append({"case": c, "direction": direction, "threads": threads, "iterations": iterations,
                             "seconds": repeats + OVERHEAD_SECONDS})
    return rows, skipped


def verdict(fraction, goal):
    """Above 1 the peak was disturbed, which is no reason to be content."""
    return "no" if fraction < goal else "yes" if fraction <= 1 else "peak too low: machine not quiet"


def machine():
    model = "unknown CPU"
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                model = line.split(":", 1)[1].strip()
                break
    return f"{model}, {len(os.sched_getaffinity(0))} CPUs allowed"


def limits(bench, program, bench_kernels, only="", rounds=3):
    """Measures the cases whose names match `only`, `rounds` runs each, and prints each row when it is measured."""
    info = json.loads(subprocess.run([program, "info", "--json", "-"], capture_output=True, text=True,
                                     check=True).stdout.splitlines()[0])
    rows, skipped = planned_rows(program, info["isas"], only)
    if not rows:
        sys.exit(f"bench/figures: --only is '{only}', which no case matches that this machine can run; cases are:\n  "
                 + "\n  ".join(c["name"] for c in CASES))
    minutes = sum(row["seconds"] for row in rows) * rounds / 60
    print(f"\nLimits: {machine()}, {' '.join(info['isas'])}; {len(rows)} rows x {rounds} runs, about"
          f" {math.ceil(minutes)} min on a quiet machine\n")
    print("| case | direction | threads | goal | median | best | reached | peak GFLOP/s | load |")
    print("|" + "---|" * 9)
    for row in rows:
        c, direction, threads = row["case"], row["direction"], row["threads"]
        measured, load = [], os.getloadavg()[0]
        for _ in range(rounds):
            measured.append(hop_pair(bench_kernels, direction, threads) if c.get("hop_pair") else
                            through_program(bench, c["arguments"], direction, threads, row["iterations"]))
            load = max(load, os.getloadavg()[0])
        fractions, goal = [fraction for fraction, _ in measured], c["goals"][direction]
        median = statistics.median(fractions)
        print(f"| {c['name']} | {direction} | {threads} | {goal:.2f} | {median:.3f} | {max(fractions):.3f} |"
              f" {verdict(median, goal)} | {statistics.median(p for _, p in measured):.0f} | {load:.1f} |",
              flush=True)
    for line in skipped:
        print(f"\n{line}")
