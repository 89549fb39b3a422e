#!/usr/bin/env python3
"""Compares how fast memtrack and CPython answer about a PyTorch snapshot, and with how much memory.

    memtrack-cli/benches/snapshot_speed.py --memory-viz PATH/_memory_viz.py [--rounds 3] [--large] [FILE]

Both sides take turns in one run; what counts is the CPU time of a whole process, user and system, from the file to the
text; for loading, of that alone on both sides, which is shown by the clock too. The file is in memory on both sides. On PyTorch's side that is `pickle.load`
and then the function of `_memory_viz.py`: the Python that runs this script does both, in a process of its own.
`--memory-viz` names that file; without it the one of an installed torch is taken, and where there is neither only
`pickle.load` is timed. PyTorch itself is not needed.

Without FILE the inputs are made by `tests/oracle/make/make_snapshots.py` (0.1 and 1 million events, with `--large`
also 5 million, which takes minutes and, for CPython, gigabytes) and kept in `--inputs` for the next time. The tables
are Markdown; docs/COSTS.md has those of one machine. Exit code 1 when a bound does not hold.
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
# Millions of events; the bounds hold for the one named.
SIZES, LARGE, BOUNDED = [0.1, 1], 5, 1
QUESTIONS = {
    "stats": ["stats"],
    "memory": ["memory", "--folded"],
    "segments": ["segments", "--folded"],
    "trace": ["trace"],
}
# So many times faster, and for loading this part of CPython's memory.
BOUNDS = {"load": 10, "stats": 12, "memory": 12, "segments": 12, "trace": 40}
MEMORY_BOUND = 0.25
MIB = 1 << 20


def python_side(path, memory_viz):
    """Runs in a process of its own: loads the file, answers each question, prints what each took as JSON."""
    viz = None
    if memory_viz:
        spec = importlib.util.spec_from_file_location("_memory_viz", memory_viz)
        viz = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(viz)
    with open(path, "rb") as file:
        clock, start = time.perf_counter(), time.process_time()
        snapshot = pickle.load(file)
        took = {"load": time.process_time() - start, "load (clock)": time.perf_counter() - clock}
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if viz:
        # The folded lines themselves: the picture is another program's work.
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
            took[name] = time.process_time() - start
    json.dump({"seconds": took, "memory": memory}, sys.stdout)
    sys.stdout.flush()
    # Taking the objects apart again is not what is timed.
    os._exit(0)


def installed_memory_viz():
    """The file in an installed torch, found without importing it."""
    torch = importlib.util.find_spec("torch")
    path = Path(torch.origin).parent / "cuda/_memory_viz.py" if torch and torch.origin else None
    return path if path and path.is_file() else None


def run(command, path):
    """CPU seconds, peak memory in bytes, and standard output of a process that reads `path`."""
    # Nobody pays for the disk: a minute of the other side's work is enough for a system to forget the file.
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
    wanted = {"memtrack": ["-p", "memtrack-cli", "--bin", "memtrack"]}
    wanted["snapshot_load"] = ["-p", "memtrack-core", "--bench", "snapshot_load"]
    paths = {}
    for name, what in wanted.items():
        command = ["cargo", "build", "--release", *what, "--message-format=json-render-diagnostics"]
        built = subprocess.run(command, cwd=REPOSITORY, stdout=subprocess.PIPE, check=True, text=True)
        messages = [json.loads(line) for line in built.stdout.splitlines()]
        paths[name] = next(m["executable"] for m in messages if m.get("executable") and m["target"]["name"] == name)
    return paths["memtrack"], paths["snapshot_load"]


def inputs(folder, sizes):
    """The snapshots by millions of events, made where they are missing."""
    if not MAKER.is_file():
        sys.exit(f"{MAKER} is not there: name a snapshot instead")
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
    """Medians: what each side took for each question."""
    memtrack, load = tools
    ours, theirs = {}, {}

    def note(side, name, seconds, memory):
        side.setdefault(name, []).append((seconds, memory))

    for number in range(rounds):
        print(f"{path.name}: round {number + 1} of {rounds}", file=sys.stderr)
        _, memory, said = run([load, "--once", path], path)
        seconds, clock = map(float, said.split())
        note(ours, "load", seconds, memory)
        note(ours, "load (clock)", clock, memory)
        for name, verb in {**QUESTIONS, "summary": ["summary"], "peak": ["peak"]}.items():
            note(ours, name, *run([memtrack, *verb, path], path)[:2])
        *_, text = run([sys.executable, __file__, "--python-side", path, "--memory-viz", memory_viz or ""], path)
        answer = json.loads(text)
        for name, seconds in answer["seconds"].items():
            whole = seconds if name.startswith("load") else answer["seconds"]["load"] + seconds
            note(theirs, name, whole, answer["memory"])
    middle = lambda side: {name: [statistics.median(part) for part in zip(*of)] for name, of in side.items()}
    return middle(ours), middle(theirs)


def row(*cells):
    print("| " + " | ".join(cells) + " |")


def comparison(path, ours, theirs, bounded):
    """Prints one file's table; the bounds that do not hold."""
    broken = []
    print(f"\n{path.name}, {path.stat().st_size / 1e6:.0f} MB:\n")
    row("", "memtrack", "CPython", "faster", "bound", "memtrack's peak", "CPython's after loading")
    row("---", *["--:"] * 6)
    for name, (seconds, memory) in ours.items():
        if name not in theirs:
            row(name, f"{seconds:.2f} s", "", "", "", f"{memory / MIB:.0f} MiB", "")
            continue
        whole, python_memory = theirs[name]
        ratio, bound = whole / seconds, BOUNDS.get(name)
        if bounded and bound and ratio < bound:
            broken.append(f"{name}: {ratio:.1f} times as fast, not {bound}")
        if bounded and name == "load" and memory > MEMORY_BOUND * python_memory:
            broken.append(f"load: {memory / python_memory:.2f} of CPython's memory, not {MEMORY_BOUND}")
        cells = [f"{seconds:.2f} s", f"{whole:.2f} s", f"{ratio:.1f} ×", f"{bound} ×" if bounded and bound else ""]
        row(name, *cells, f"{memory / MIB:.0f} MiB", f"{python_memory / MIB:.0f} MiB")
    for name in ["summary", "peak"]:
        if bounded is None and ours[name][1] > path.stat().st_size:
            broken.append(f"{name}: {ours[name][1] / MIB:.0f} MiB, more than the file")
    return broken


def growth(all_ours):
    """Prints what a million events cost at each size."""
    print("\nmemtrack's CPU seconds and MiB for each million events:\n")
    names = list(next(iter(all_ours.values())))
    row("events", *names)
    row("--:", *["--:"] * len(names))
    for size, ours in all_ours.items():
        row(f"{size:g} M", *(f"{ours[n][0] / size:.2f} s, {ours[n][1] / MIB / size:.0f} MiB" for n in names))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path, metavar="FILE", help="a snapshot (default: made ones)")
    parser.add_argument("--memory-viz", type=Path, help="PyTorch's torch/cuda/_memory_viz.py")
    parser.add_argument("--rounds", type=int, default=3, help="how often both sides take turns (default 3)")
    parser.add_argument("--large", action="store_true", help=f"also {LARGE} million events")
    parser.add_argument("--inputs", type=Path, default=REPOSITORY / "target/snapshot-speed", help="where inputs lie")
    parser.add_argument("--python-side", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.python_side:
        # An empty `--memory-viz` is the path ".".
        viz = arguments.memory_viz if arguments.memory_viz and arguments.memory_viz.is_file() else None
        return python_side(arguments.python_side, viz)
    if arguments.memory_viz and not arguments.memory_viz.is_file():
        sys.exit(f"{arguments.memory_viz} is not there")
    memory_viz = arguments.memory_viz or installed_memory_viz()
    if memory_viz is None:
        print("no _memory_viz.py: only loading is compared", file=sys.stderr)
    tools = build()
    if arguments.file:
        files = {None: arguments.file}
    else:
        files = inputs(arguments.inputs, SIZES + [LARGE] * arguments.large)
    broken, all_ours = [], {}
    for size, path in files.items():
        # Python's trace of five million events would take minutes and proves nothing more.
        viz, rounds = (None, 1) if size == LARGE else (memory_viz, arguments.rounds)
        ours, theirs = measure(path, tools, viz, rounds)
        all_ours[size] = ours
        broken += comparison(path, ours, theirs, None if size == LARGE else size == BOUNDED)
    if not arguments.file:
        growth(all_ours)
    for line in broken:
        print(f"bound broken: {line}", file=sys.stderr)
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
