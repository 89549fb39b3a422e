#!/usr/bin/env python3
"""Measures the cost per core of `memtrack export --parquet`, with and without --events, and of `memtrack ranks`, on your PyTorch
snapshots, and extrapolates to a job with RANKS snapshots of GIB each. docs/COSTS.md has the results of one run.

Usage: dataset_scale.py MEMTRACK FILES… [--ranks 16384] [--gib 1] [--rounds 3] [--grow 100]

Times are processor time, user and system, of one process that reads one file, the minimum of the rounds, because other work on the
machine only adds. The traces of snapshots smaller than --grow MB are repeated until the file has that size, because the cost of a
small file is mostly that of writing ten files. The bytes of an event in the data set are measured on the original snapshot, because
repetitions compress well.
"""

import argparse
import gzip
import json
import os
import pickle
import shutil
import tempfile
from pathlib import Path

MB, MIB, GIB, TIB = 1e6, 1 << 20, 1 << 30, 1 << 40
TIMES = ("ranks", "export", "all")


def run(command):
    """Runs a command; returns its CPU seconds, peak memory in bytes, and output."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.dup2(write, 1)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        os.execv(command[0], command)
    os.close(write)
    with open(read, "rb") as output:
        text = output.read()
    _, status, used = os.wait4(pid, 0)
    if status:
        raise SystemExit(f"{command} ended with {status}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss * 1024, text


def least(rounds, command):
    """Returns the minimum time of several rounds, the maximum memory, and the output of the last."""
    runs = [run(command) for _ in range(rounds)]
    return min(seconds for seconds, _, _ in runs), max(memory for _, memory, _ in runs), runs[-1][2]


def repeated(root, times):
    """Returns, as a pickle, a snapshot with its traces repeated `times` times."""
    traces = []
    for trace in root["device_traces"]:
        duration = 1 + trace[-1].get("time_us", 0) - trace[0].get("time_us", 0) if trace else 0
        later = [dict(event) for _ in range(times) for event in trace]
        for at, event in enumerate(later):
            if "time_us" in event:
                event["time_us"] += at // len(trace) * duration
        traces.append(later)
    return pickle.dumps(dict(root, device_traces=traces))


def grown(file, size):
    """Returns the path of a snapshot of at least `size` bytes, made from a smaller one by repetition."""
    if file.stat().st_size >= size:
        return file
    with open(file, "rb") as input:
        root = pickle.load(input)
    once, twice = len(repeated(root, 1)), len(repeated(root, 2))
    path = file.with_name("grown.pickle")
    path.write_bytes(repeated(root, 1 + -(-(size - once) // (twice - once))))
    return path


def measure(memtrack, file, work, arguments):
    """Measures the costs of one snapshot."""
    folder = work / file.name
    folder.mkdir()
    plain = folder / "snapshot.pickle"
    with (gzip.open if file.suffix == ".gz" else open)(file, "rb") as packed, open(plain, "wb") as unpacked:
        shutil.copyfileobj(packed, unpacked)

    def export(of, *more):
        return [memtrack, "export", "--parquet", str(folder / "set"), "--force", "--json", *more, str(of)]

    def count(of):
        return json.loads(run([memtrack, "ranks", "--json", str(of)])[2])["ranks"][0]["events"]

    def size(*more):
        return json.loads(run(export(plain, *more))[2])["ranks"][0]["size_bytes"]

    fixed, events = size(), count(plain)
    found = dict(name=file.name.split(".")[0], event_bytes=(size("--events") - fixed) / events)
    of = grown(plain, int(arguments.grow * MB))
    found.update(bytes=of.stat().st_size, events=count(of), fixed=size() if of == plain else json.loads(run(export(of))[2])["ranks"][0]["size_bytes"])
    for key, command in [("ranks", [memtrack, "ranks", "--json", str(of)]), ("export", export(of)), ("all", export(of, "--events"))]:
        seconds, memory, _ = least(arguments.rounds, command)
        found[key], found["memory"] = seconds, max(memory, found.get("memory", 0))
    shutil.rmtree(folder)
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("memtrack")
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--ranks", type=int, default=16384)
    parser.add_argument("--gib", type=float, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--grow", type=float, default=100, metavar="MB")
    arguments = parser.parse_args()
    memtrack = os.path.realpath(arguments.memtrack)
    with tempfile.TemporaryDirectory() as work:
        found = [measure(memtrack, file, Path(work), arguments) for file in arguments.files]
    print("| snapshot | size | events | bytes an event | `ranks` | export | with events | peak memory | rank in the data set | event in it |")
    print("| --- | --: | --: | --: | --: | --: | --: | --: | --: | --: |")
    for one in found:
        rates = " | ".join(f"{one['bytes'] / MB / one[key]:.0f} MB/s, {one['events'] / 1e6 / one[key]:.1f} M/s" for key in TIMES)
        print(f"| {one['name']} | {one['bytes'] / MB:.0f} MB | {one['events']:,} | {one['bytes'] / one['events']:.0f} | {rates} | "
            f"{one['memory'] / MIB:.0f} MiB, {one['memory'] / one['bytes']:.1f} × | {one['fixed'] / 1024:.0f} KiB | {one['event_bytes']:.1f} B |")
    total = arguments.ranks * arguments.gib * GIB
    print(f"\n{arguments.ranks:,} ranks × {arguments.gib:g} GiB = {total / TIB:.2f} TiB\n")
    print("| by | events | core hours: `ranks` | export | with events | data set | with events | memory a core |")
    print("| --- | --: | --: | --: | --: | --: | --: | --: |")
    for one in found:
        times = total / one["bytes"]
        hours = " | ".join(f"{times * one[key] / 3600:.1f}" for key in TIMES)
        fixed, events = arguments.ranks * one["fixed"], times * one["events"] * one["event_bytes"]
        print(f"| {one['name']} | {times * one['events'] / 1e9:.0f} G | {hours} | {fixed / GIB:.1f} GiB | {(fixed + events) / GIB:,.0f} GiB | "
            f"{one['memory'] / one['bytes'] * arguments.gib:.1f} GiB |")


if __name__ == "__main__":
    main()
