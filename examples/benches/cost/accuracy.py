#!/usr/bin/env python3
"""Compares sampled recordings of a training run with the exact numbers, from a recording of every block.

Run it from anywhere in the repository; `README.md` beside it describes what is counted. The exit code is 1 if fewer than 95 % of
the rows with at least a hundredth of all bytes or blocks are within 10 % of the exact numbers.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from cost import BUILDS, REPOSITORY, Runner, build

# The tiny model allocates four million blocks per second, and 3 % of the time suffices to record some 10,000 of them: after
# seven seconds each of its forty rows is within a tenth; after half a second (200 steps), half of the rows are.
STEPS = {"default": 20, "tiny": 3000}
WITHIN, SHARE_OF_ROWS, MIN_SHARE = 0.10, 0.95, 0.01


def rows_of(runner, binary, workload, folder, *mode):
    """Returns the rows of one run by name, and the measurements that the run printed."""
    config, steps = workload
    path = Path(folder) / "rows.json"
    command = [binary, "--config", config, "--steps", str(steps), "--rows", str(path), "--mode", *mode]
    process = runner.start(command, env=runner.environment, stdout=subprocess.PIPE)
    report = json.loads(process.communicate()[0])
    if process.returncode != 0:
        sys.exit(f"the benchmark ended with {process.returncode}")
    return {row["name"] or row["why_no_name"]: row for row in json.loads(path.read_text())["rows"]}, report


def compare(truth, rows, tally):
    """Adds the rows of one run to the tally."""
    for number in ("requested_bytes", "count"):
        everything = sum(row[number] for row in truth.values())
        for name, true in truth.items():
            row = rows.get(name)
            if row is not None:
                # An exact number has no error.
                error = row[f"{number}_error"] or {"low": row[number], "high": row[number]}
                low, high = error["low"], error["high"]
                tally["intervals"] += 1
                tally["hold"] += low <= true[number] <= high
            if true[number] < MIN_SHARE * everything:
                continue
            off = abs((row[number] if row else 0) / true[number] - 1)
            tally["rows"] += 1
            tally["within"] += off <= WITHIN
            tally["worst"] = max(tally["worst"], (off, f"{name}, {number}"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=20, help="sampled runs of each workload (default: 20)")
    parser.add_argument("--budget", type=float, action="append",
                        help="share of the time that recording may take, several times for several (default: 0.03)")
    parser.add_argument("--workload", choices=STEPS, help="only this one")
    parser.add_argument("--steps", type=int, help="training steps of a run")
    parser.add_argument("--build", choices=BUILDS, default="no frame pointers")
    parser.add_argument("--cpu", type=int, default=-1, help="the processor to pin to; -1: none")
    parser.add_argument("--target", type=Path, default=REPOSITORY / "target/cost", help="where to build")
    parser.add_argument("--binary", help="an executable that was built before")
    arguments = parser.parse_args()

    runner = Runner(None if arguments.cpu < 0 else arguments.cpu)
    binary = arguments.binary or build(arguments.build, BUILDS[arguments.build], arguments.target)
    holds = True
    with tempfile.TemporaryDirectory(prefix="cost-accuracy-") as folder:
        for config in [config for config in STEPS if arguments.workload in (None, config)]:
            workload = (config, arguments.steps or STEPS[config])
            truth, _ = rows_of(runner, binary, workload, folder, "exact-all")
            for budget in arguments.budget or [0.03]:
                tally = {"rows": 0, "within": 0, "intervals": 0, "hold": 0, "worst": (0.0, "none")}
                reports = []
                for number in range(arguments.runs):
                    print(f"\r{config}: run {number + 1} of {arguments.runs}", end="", file=sys.stderr, flush=True)
                    rows, report = rows_of(runner, binary, workload, folder, "budget", "--budget", str(budget))
                    compare(truth, rows, tally)
                    reports.append(report)
                print(file=sys.stderr)
                within = tally["within"] / max(1, tally["rows"])
                holds &= within >= SHARE_OF_ROWS
                middle = sorted(report["unrecorded"] / report["allocations"] for report in reports)[len(reports) // 2]
                print(f"{config}, {workload[1]} steps, budget {budget:.1%}, {arguments.runs} runs: "
                      f"{within:.1%} of {tally['rows']} rows within {WITHIN:.0%} of the truth "
                      f"(the worst: {tally['worst'][0]:.1%} off, {tally['worst'][1]}); "
                      f"{tally['hold'] / max(1, tally['intervals']):.1%} of {tally['intervals']} intervals hold it; "
                      f"{middle:.1%} of the blocks went unrecorded")
    sys.exit(0 if holds else 1)


if __name__ == "__main__":
    main()
