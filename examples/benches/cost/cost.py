#!/usr/bin/env python3
"""Compares the costs of recording a training run: memtrack's modes, and heaptrack with the same binary.

Run it from anywhere in the repository; `README.md` beside it describes what is counted. It builds the benchmark `cost` of
memtrack-examples-benches twice, without and with frame pointers, runs all variants in turns, and prints the medians as a
Markdown table. The exit code is 1 if a bound does not hold.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
# (--config, --steps): at least a million allocations each.
WORKLOADS = [("default", 55), ("tiny", 200)]
BUILDS = {"no frame pointers": "", "frame pointers": "-C force-frame-pointers=yes"}
MODES = ["off", "default", "exact", "exact-all"]

# The default budget is 3 %; costs outside the budget may add 1 %.
DEFAULT_BOUND = 1.04
# The bound on exact recording, as a share of the time that heaptrack adds.
EXACT_BOUND = {"no frame pointers": 1.0, "frame pointers": 0.5}


def build(name, flags, target):
    """Builds the benchmark and returns its path."""
    environment = dict(os.environ, CARGO_TARGET_DIR=str(target / name.replace(" ", "-")))
    environment.pop("CARGO_ENCODED_RUSTFLAGS", None)
    environment["RUSTFLAGS"] = flags
    command = ["cargo", "build", "--release", "-p", "memtrack-examples-benches", "--bench", "cost"]
    command += ["--message-format=json-render-diagnostics"]
    built = subprocess.run(command, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, check=True, text=True)
    messages = map(json.loads, built.stdout.splitlines())
    return next(m["executable"] for m in messages if m.get("executable") and m["target"]["name"] == "cost")


def heaptrack_parts():
    """Returns the library that heaptrack preloads, and its interpreter, located as its start script locates them."""
    script = shutil.which("heaptrack")
    if script is None:
        sys.exit("heaptrack is not installed (Debian package `heaptrack`); --without-heaptrack leaves it out")
    parts = Path(script).resolve().parent.parent / "lib/heaptrack"
    return parts / "libheaptrack_preload.so", parts / "libexec/heaptrack_interpret"


def seconds(usage):
    return usage.ru_utime + usage.ru_stime


def wait(process, what):
    """Waits for a process and returns the resource usage of this process only."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"{what} ended with {process.returncode}")
    return usage


# A single block at the top of the heap determines how often glibc returns pages to the system and requests them again, which
# by chance takes up to a quarter of a run's time. So no variant returns pages.
KEEP_PAGES = {"MALLOC_TRIM_THRESHOLD_": str(8 << 30), "MALLOC_MMAP_THRESHOLD_": str(32 << 20)}


class Runner:
    """Starts programs with one candle thread, on one processor."""

    def __init__(self, cpu):
        self.cpu = cpu
        self.environment = dict(os.environ, RAYON_NUM_THREADS="1", CANDLE_NUM_THREADS="1", **KEEP_PAGES)

    def start(self, command, pinned=True, **more):
        pin = (lambda: os.sched_setaffinity(0, {self.cpu})) if pinned and self.cpu is not None else None
        return subprocess.Popen(command, preexec_fn=pin, **more)

    def run(self, binary, workload, mode):
        """Runs one variant; returns the CPU seconds of the process and of its `stop()`, and peak memory in MiB."""
        config, steps = workload
        command = [binary, "--mode", mode, "--config", config, "--steps", str(steps)]
        process = self.start(command, env=self.environment, stdout=subprocess.PIPE)
        report = json.loads(process.stdout.read())
        process.stdout.close()
        usage = wait(process, "the benchmark")
        return {
            "cpu": seconds(usage),
            "stop": report["stop_cpu_seconds"],
            "mib": report["peak_kib"] / 1024,
            "mib_stop": report["peak_kib_after_stop"] / 1024,
            "report": report,
        }

    def run_beside_off(self, binary, workload, mode, first):
        """Like `run`, with an `off` on the same processor at the same time. Its CPU seconds are returned as `off_cpu`."""
        config, steps = workload
        started = {}
        for name in (mode, "off") if first else ("off", mode):
            command = [binary, "--mode", name, "--config", config, "--steps", str(steps)]
            started[name] = self.start(command, env=self.environment, stdout=subprocess.PIPE)
        used, reports = {}, {}
        for name, process in started.items():
            reports[name] = json.loads(process.stdout.read())
            process.stdout.close()
            used[name] = seconds(wait(process, "the benchmark"))
        report = reports[mode]
        return {
            "cpu": used[mode],
            "off_cpu": used["off"],
            "stop": report["stop_cpu_seconds"],
            "mib": report["peak_kib"] / 1024,
            "mib_stop": report["peak_kib_after_stop"] / 1024,
            "report": report,
        }

    def run_heaptrack(self, binary, workload, library, interpreter):
        """Like `run` with heaptrack: repeats the steps of its start script, and measures each process separately."""
        config, steps = workload
        with tempfile.TemporaryDirectory(prefix="cost-heaptrack-") as folder:
            pipe, output = Path(folder) / "pipe", Path(folder) / "heaptrack.zst"
            os.mkfifo(pipe)
            # Opened for reading and writing, so that opening does not block; closed after the writer has opened the pipe.
            both_ends = os.open(pipe, os.O_RDWR)
            reading = os.open(pipe, os.O_RDONLY)
            environment = dict(self.environment, LD_PRELOAD=str(library), DUMP_HEAPTRACK_OUTPUT=str(pipe))
            command = [binary, "--mode", "off", "--config", config, "--steps", str(steps)]
            process = self.start(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            with open(output, "wb") as file:
                interpret = self.start(
                    [str(interpreter)], False, stdin=reading, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
                )
                compress = self.start(["zstd", "-q", "-c"], False, stdin=interpret.stdout, stdout=file)
            os.close(reading)
            interpret.stdout.close()
            report = json.loads(process.stdout.readline())
            process.stdout.read()
            process.stdout.close()
            usage = wait(process, "the benchmark under heaptrack")
            os.close(both_ends)
            interpreted = wait(interpret, "heaptrack_interpret")
            compressed = wait(compress, "zstd")
            written = output.stat().st_size
        return {
            "cpu": seconds(usage),
            "others": seconds(interpreted) + seconds(compressed),
            "stop": 0.0,
            "mib": report["peak_kib"] / 1024,
            "mib_stop": report["peak_kib_after_stop"] / 1024,
            "mib_others": interpreted.ru_maxrss / 1024,
            "bytes": written,
            "report": report,
        }


def median(rounds, mode, key):
    return statistics.median(round_[mode][key] for round_ in rounds)


def off_of(round_, mode, key="cpu"):
    """Returns the value of the `off` that ran concurrently with this variant, or else of the `off` in the same round."""
    return round_[mode].get(f"off_{key}", round_["off"][key])


def ratio(rounds, mode):
    """Returns the median over rounds of a variant's time divided by the time of the round's `off`, which has the same noise."""
    return statistics.median(round_[mode]["cpu"] / off_of(round_, mode) for round_ in rounds)


def quartiles(rounds, mode):
    """Returns the quartiles of the rounds' time ratios."""
    ratios = [round_[mode]["cpu"] / off_of(round_, mode) for round_ in rounds]
    if len(ratios) < 4:
        return min(ratios), max(ratios)
    low, _, high = statistics.quantiles(ratios, n=4)
    return low, high


def added(rounds, mode, key="cpu"):
    return statistics.median(round_[mode][key] - off_of(round_, mode, key) for round_ in rounds)


def rows(rounds, workload, name):
    """Yields the table's rows for one build and workload."""
    for mode in [mode for mode in (*MODES, "heaptrack") if mode in rounds[0]]:
        ratio_text = f"{ratio(rounds, mode):.3f}" if mode != "off" else "1"
        added_ms = "" if mode == "off" else f"{1000 * added(rounds, mode):+.0f}"
        stop_ms = "" if mode in ("off", "heaptrack") else f"{1000 * median(rounds, mode, 'stop'):.0f}"
        memory = "" if mode == "off" else f"{added(rounds, mode, 'mib'):+.0f}"
        memory_stop = "" if mode == "off" else f"{added(rounds, mode, 'mib_stop'):+.0f}"
        cpu = f"{median(rounds, mode, 'cpu'):.3f}"
        yield f"| {workload} | {name} | {mode} | {cpu} | {ratio_text} | {added_ms} | {stop_ms} | {memory} | {memory_stop} |"
    if "heaptrack" in rounds[0]:
        both = [{"off": r["off"], "both": {
            "cpu": r["heaptrack"]["cpu"] + r["heaptrack"]["others"],
            "mib": r["heaptrack"]["mib"] + r["heaptrack"]["mib_others"],
        }} for r in rounds]
        memory = f"{added(both, 'both', 'mib'):+.0f}"
        yield (f"| {workload} | {name} | heaptrack and its interpreter | {median(both, 'both', 'cpu'):.3f} "
               f"| {ratio(both, 'both'):.3f} | {1000 * added(both, 'both'):+.0f} | | {memory} | {memory} |")


def spread(rounds, mode):
    """Returns the interquartile range of the time that a variant adds: the effect of noise on a single round."""
    differences = [round_[mode]["cpu"] - off_of(round_, mode) for round_ in rounds]
    if len(differences) < 4:
        return float("inf")
    low, _, high = statistics.quantiles(differences, n=4)
    return high - low


def verdicts(rounds, workload, name):
    """Compares each bound with the measurement: (holds, text)."""
    if any(spread(rounds, mode) > abs(added(rounds, "heaptrack")) for mode in ("exact", "heaptrack") if mode in rounds[0]
           and "heaptrack" in rounds[0]):
        yield False, f"{workload}, {name}: UNCLEAR, the noise is larger than what is measured; more rounds, a quieter machine"
    where = f"{workload}, {name}"
    if "default" in rounds[0]:
        default, (low, high) = ratio(rounds, "default"), quartiles(rounds, "default")
        half = f"half of the rounds between {low:.3f} and {high:.3f}"
        yield default <= DEFAULT_BOUND, f"{where}: default mode takes {default:.3f}× off, {half} (bound {DEFAULT_BOUND}×)"
    if "heaptrack" in rounds[0]:
        # Compares the time with `stop()` to heaptrack's traced process alone: the comparison that favours heaptrack most.
        for mode in [mode for mode in ("exact", "exact-all") if mode in rounds[0]]:
            share, bound = added(rounds, mode) / added(rounds, "heaptrack"), EXACT_BOUND[name]
            yield share <= bound, f"{where}: {mode} adds {share:.2f} of what heaptrack adds (bound {bound:.2f})"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15, help="number of runs of each variant (default: 15)")
    parser.add_argument("--cpu", type=int, default=max(os.sched_getaffinity(0)), help="the processor to pin to; -1: none")
    parser.add_argument("--workload", choices=[w[0] for w in WORKLOADS], help="only this one")
    parser.add_argument("--steps", type=int, help="training steps of a run (default: enough for a million allocations)")
    parser.add_argument("--build", choices=BUILDS, help="only this one")
    parser.add_argument("--target", type=Path, default=REPOSITORY / "target/cost", help="where to build")
    parser.add_argument("--without-heaptrack", action="store_true")
    parser.add_argument(
        "--pairs", action="store_true",
        help="each variant at the same time as an `off` on the same processor: for a machine whose speed varies",
    )
    parser.add_argument("--modes", nargs="+", choices=MODES[1:], default=MODES[1:], help="only these variants")
    parser.add_argument("--json", type=Path, help="also write every run's numbers here")
    arguments = parser.parse_args()

    tool = None if arguments.without_heaptrack else heaptrack_parts()
    runner = Runner(None if arguments.cpu < 0 else arguments.cpu)
    builds = {name: flags for name, flags in BUILDS.items() if arguments.build in (None, name)}
    binaries = {name: build(name, flags, arguments.target) for name, flags in builds.items()}
    workloads = [(w, arguments.steps or n) for w, n in WORKLOADS if arguments.workload in (None, w)]

    table, results, everything = [], [], {}
    for workload in workloads:
        rounds = {name: [] for name in binaries}
        for number in range(arguments.rounds):
            print(f"\r{workload[0]}: round {number + 1} of {arguments.rounds}", end="", file=sys.stderr, flush=True)
            for name, binary in binaries.items():
                # Every second round runs in reverse order, so that the first variant is not always the same.
                if arguments.pairs:
                    runs = {
                        mode: runner.run_beside_off(binary, workload, mode, number % 2) for mode in arguments.modes
                    }
                    runs["off"] = runner.run(binary, workload, "off")
                else:
                    order = ["off", *arguments.modes][:: -1 if number % 2 else 1]
                    runs = {mode: runner.run(binary, workload, mode) for mode in order}
                if tool:
                    runs["heaptrack"] = runner.run_heaptrack(binary, workload, *tool)
                rounds[name].append(runs)
        print(file=sys.stderr)
        for name, runs in rounds.items():
            table += rows(runs, workload[0], name)
            results += verdicts(runs, workload[0], name)
            everything[f"{workload[0]}, {name}"] = runs
            most = runs[0][arguments.modes[-1]]["report"]
            print(
                f"{workload[0]} ({workload[1]} steps), {name}: {most['allocations']} allocations, "
                f"{most['recorded']} events, {most['stacks']} stacks of "
                f"{most['frames'] / max(1, most['stacks']):.0f} frames on average"
            )
    if arguments.json:
        arguments.json.write_text(json.dumps(everything))

    print("\n| workload | build | variant | CPU s | ratio to off | added CPU ms | of it `stop()` ms "
          "| added MiB, recording | added MiB, with `stop()` |")
    print("| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    print("\n".join(table))
    print()
    for holds, text in results:
        print(f"{'holds' if holds else 'FAILS'}: {text}")
    sys.exit(0 if all(holds for holds, _ in results) else 1)


if __name__ == "__main__":
    main()
