#!/usr/bin/env python3
"""Compares the time and memory that memtrack and CPython need for reports on a PyTorch snapshot.

    memtrack-cli/benches/snapshot_speed.py --memory-viz PATH/_memory_viz.py [--rounds 3] [--large] [FILE]

Both sides run alternately. The result is the CPU time of a whole process, user and system, from the file to the text; for
loading, it is the time of loading alone, which is also given as elapsed time. The file is in the page cache on both sides.
PyTorch's side is `pickle.load` and then the function of `_memory_viz.py`: the Python that runs this script does both, in a
separate process. `--memory-viz` is the path of that file; the default is the one of an installed torch, and without either
only `pickle.load` is timed. PyTorch itself is not needed.

Without FILE the inputs are made by `tests/oracle/make/make_snapshots.py` (0.1 and 1 million events, with `--large`
also 5 million, which takes minutes and, for CPython, gigabytes) and kept in `--inputs` for the next time. The tables
are Markdown; docs/COSTS.md has those of one machine. The exit code is 1 if a bound does not hold.
"""

import argparse
import contextlib
import importlib.util
import io
import json
import os
import pickle
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
MAKER = REPOSITORY / "tests/oracle/make/make_snapshots.py"
# Millions of events; the bounds apply to BOUNDED.
SIZES, LARGE, BOUNDED = [0.1, 1], 5, 1
REPORTS = {
    "stats": ["stats"],
    "memory": ["memory", "--folded"],
    "segments": ["segments", "--folded"],
    "trace": ["trace"],
}
# memtrack must be this many times as fast, and its memory for loading at most this share of CPython's.
BOUNDS = {"load": 10, "stats": 12, "memory": 12, "segments": 12, "trace": 40}
MEMORY_BOUND = 0.25
MIB = 1 << 20


def python_side(path, memory_viz):
    """Runs in a separate process: loads the file, makes each report, prints their times as JSON."""
    viz = None
    if memory_viz:
        spec = importlib.util.spec_from_file_location("_memory_viz", memory_viz)
        viz = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(viz)
    with open(path, "rb") as file:
        clock, start = time.perf_counter(), time.process_time()
        snapshot = pickle.load(file)
        times = {"load": time.process_time() - start, "load (clock)": time.perf_counter() - clock}
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if viz:
        # Only the folded lines, because another program draws the picture.
        functions = {
            "stats": viz.segsum,
            "memory": lambda data: viz.memory(data, format_flamegraph=lambda lines: lines),
            "segments": lambda data: viz.segments(data, format_flamegraph=lambda lines: lines),
            "trace": viz.trace,
        }
        for name, function in functions.items():
            start = time.process_time()
            with contextlib.redirect_stdout(io.StringIO()):
                function(snapshot)
            times[name] = time.process_time() - start
    json.dump({"seconds": times, "memory": memory}, sys.stdout)
    sys.stdout.flush()
    # Destroying the objects is not timed.
    os._exit(0)


def installed_memory_viz():
    """Returns the path of `_memory_viz.py` in an installed torch, without importing torch."""
    torch = importlib.util.find_spec("torch")
    path = Path(torch.origin).parent / "cuda/_memory_viz.py" if torch and torch.origin else None
    return path if path and path.is_file() else None


def run(command, path):
    """Runs a process that reads `path`; returns its CPU seconds, peak memory in bytes, and standard output."""
    # Reads the file first, so that disk reads are not measured: the other side's run may have evicted it from the page cache.
    with open(path, "rb") as file:
        while file.read(MIB):
            pass
    process = subprocess.Popen([str(part) for part in command], stdout=subprocess.PIPE)
    text = process.stdout.read()
    process.stdout.close()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"{command[0]} ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, text


def build():
    """Builds the command and the benchmark that only loads; returns their paths."""
    targets = {"memtrack": ["-p", "memtrack-cli", "--bin", "memtrack"]}
    targets["snapshot_load"] = ["-p", "memtrack-core", "--bench", "snapshot_load"]
    paths = {}
    for name, options in targets.items():
        command = ["cargo", "build", "--release", *options, "--message-format=json-render-diagnostics"]
        built = subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.PIPE, check=True, text=True)
        messages = [json.loads(line) for line in built.stdout.splitlines()]
        paths[name] = next(m["executable"] for m in messages if m.get("executable") and m["target"]["name"] == name)
    return paths["memtrack"], paths["snapshot_load"]


def inputs(folder, sizes):
    """Returns the snapshots by millions of events, after making the missing ones."""
    if not MAKER.is_file():
        sys.exit(f"{MAKER} does not exist: give a snapshot instead")
    folder.mkdir(parents=True, exist_ok=True)
    paths = {}
    for size in sizes:
        paths[size] = folder / f"snap-{size:g}m.pickle"
        if not paths[size].is_file():
            unfinished = paths[size].with_suffix(".part")
            events = str(round(size * 1e6))
            subprocess.run([sys.executable, MAKER, "sim", unfinished, "--events", events, "--seed", "1"], check=True)
            unfinished.rename(paths[size])
    return paths


def measure(path, tools, memory_viz, rounds):
    """Returns the median time and memory of each report, for memtrack and for CPython."""
    memtrack, load = tools
    memtrack_side, cpython_side = {}, {}

    def note(side, name, seconds, memory):
        side.setdefault(name, []).append((seconds, memory))

    for number in range(rounds):
        print(f"{path.name}: round {number + 1} of {rounds}", file=sys.stderr)
        _, memory, output = run([load, "--once", path], path)
        seconds, clock = map(float, output.split())
        note(memtrack_side, "load", seconds, memory)
        note(memtrack_side, "load (clock)", clock, memory)
        for name, verb in {**REPORTS, "summary": ["summary"], "peak": ["peak"]}.items():
            note(memtrack_side, name, *run([memtrack, *verb, path], path)[:2])
        *_, text = run([sys.executable, __file__, "--python-side", path, "--memory-viz", memory_viz or ""], path)
        answer = json.loads(text)
        for name, seconds in answer["seconds"].items():
            whole = seconds if name.startswith("load") else answer["seconds"]["load"] + seconds
            note(cpython_side, name, whole, answer["memory"])
    medians = lambda side: {name: [statistics.median(part) for part in zip(*of)] for name, of in side.items()}
    return medians(memtrack_side), medians(cpython_side)


def row(*cells):
    print("| " + " | ".join(cells) + " |")


def comparison(path, memtrack_side, cpython_side, bounded):
    """Prints one file's table; returns the violated bounds."""
    broken = []
    print(f"\n{path.name}, {path.stat().st_size / 1e6:.0f} MB:\n")
    row("", "memtrack", "CPython", "faster", "bound", "memtrack's peak", "CPython's after loading")
    row("---", *["--:"] * 6)
    for name, (seconds, memory) in memtrack_side.items():
        if name not in cpython_side:
            row(name, f"{seconds:.2f} s", "", "", "", f"{memory / MIB:.0f} MiB", "")
            continue
        whole, python_memory = cpython_side[name]
        ratio, bound = whole / seconds, BOUNDS.get(name)
        if bounded and bound and ratio < bound:
            broken.append(f"{name}: {ratio:.1f} times as fast, not {bound}")
        if bounded and name == "load" and memory > MEMORY_BOUND * python_memory:
            broken.append(f"load: {memory / python_memory:.2f} of CPython's memory, not {MEMORY_BOUND}")
        cells = [f"{seconds:.2f} s", f"{whole:.2f} s", f"{ratio:.1f} ×", f"{bound} ×" if bounded and bound else ""]
        row(name, *cells, f"{memory / MIB:.0f} MiB", f"{python_memory / MIB:.0f} MiB")
    for name in ["summary", "peak"]:
        if bounded is None and memtrack_side[name][1] > path.stat().st_size:
            broken.append(f"{name}: {memtrack_side[name][1] / MIB:.0f} MiB, more than the file")
    return broken


def growth(by_size):
    """Prints the cost of a million events at each size."""
    print("\nmemtrack's CPU seconds and MiB for each million events:\n")
    names = list(next(iter(by_size.values())))
    row("events", *names)
    row("--:", *["--:"] * len(names))
    for size, side in by_size.items():
        row(f"{size:g} M", *(f"{side[n][0] / size:.2f} s, {side[n][1] / MIB / size:.0f} MiB" for n in names))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path, metavar="FILE", help="a snapshot (default: generated ones)")
    parser.add_argument("--memory-viz", type=Path, help="PyTorch's torch/cuda/_memory_viz.py")
    parser.add_argument("--rounds", type=int, default=3, help="how often each side runs (default 3)")
    parser.add_argument("--large", action="store_true", help=f"also {LARGE} million events")
    parser.add_argument("--inputs", type=Path, default=REPOSITORY / "target/snapshot-speed", help="the folder of the inputs")
    parser.add_argument("--python-side", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.python_side:
        # An empty `--memory-viz` is the path ".".
        viz = arguments.memory_viz if arguments.memory_viz and arguments.memory_viz.is_file() else None
        return python_side(arguments.python_side, viz)
    if arguments.memory_viz and not arguments.memory_viz.is_file():
        sys.exit(f"{arguments.memory_viz} does not exist")
    memory_viz = arguments.memory_viz or installed_memory_viz()
    if memory_viz is None:
        print("no _memory_viz.py: only loading is compared", file=sys.stderr)
    tools = build()
    if arguments.file:
        files = {None: arguments.file}
    else:
        files = inputs(arguments.inputs, SIZES + [LARGE] * arguments.large)
    broken, by_size = [], {}
    for size, path in files.items():
        # Python's trace of five million events would take minutes and add no information.
        viz, rounds = (None, 1) if size == LARGE else (memory_viz, arguments.rounds)
        memtrack_side, cpython_side = measure(path, tools, viz, rounds)
        by_size[size] = memtrack_side
        broken += comparison(path, memtrack_side, cpython_side, None if size == LARGE else size == BOUNDED)
    if not arguments.file:
        growth(by_size)
    for line in broken:
        print(f"bound broken: {line}", file=sys.stderr)
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
