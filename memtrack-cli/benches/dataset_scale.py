#!/usr/bin/env python3
"""What exporting ranks costs for each core, and what that makes of a job: measures `memtrack export --parquet`, with and without
--events, and `memtrack ranks`, on snapshots of your own, and extrapolates to RANKS snapshots of BYTES each. docs/SCALE.md has a run.

Usage: dataset_scale.py MEMTRACK FILES… [--ranks 16384] [--gib 1] [--rounds 3]

Times are processor time, user and system, of one process that reads one file at a time; small files are read many times over, by
links, so that they are measured and not the start of the process. Compressed files are unpacked first. The least of the rounds
counts: what else the machine does only adds.
"""

import argparse
import gzip
import json
import os
import resource
import shutil
import subprocess
import tempfile
from pathlib import Path

MB, MIB, GIB, TIB = 1e6, 1 << 20, 1 << 30, 1 << 40


def run(command):
    """Processor seconds, peak memory in bytes, and output."""
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
    """The least time of several rounds, the most memory, and the output of the last."""
    runs = [run(command) for _ in range(rounds)]
    return min(seconds for seconds, _, _ in runs), max(memory for _, memory, _ in runs), runs[-1][2]


def measure(memtrack, file, work, rounds):
    """What one snapshot costs."""
    folder = work / file.name
    folder.mkdir()
    plain = folder / "snapshot"
    with (gzip.open if file.suffix == ".gz" else open)(file, "rb") as packed, open(plain, "wb") as unpacked:
        shutil.copyfileobj(packed, unpacked)
    size = plain.stat().st_size
    links = [folder / f"rank{rank}.pickle" for rank in range(max(1, min(200, int(100 * MB // size))))]
    for link in links:
        link.symlink_to(plain)
    run([memtrack, "ranks", "--json", str(links[0])])
    paths = [str(link) for link in links]
    ranks, ranks_memory, text = least(rounds, [memtrack, "ranks", "--jobs", "1", "--json", *paths])
    events = json.loads(text)["ranks"][0]["events"]
    found = dict(name=file.name, bytes=size, events=events, ranks=ranks / len(links), memory=ranks_memory)
    for key, more in [("export", []), ("events", ["--events"])]:
        command = [memtrack, "export", "--parquet", str(folder / key), "--json", "--jobs", "1", *more, *paths]
        seconds, memory, text = least(rounds, command)
        found[key] = seconds / len(links)
        found[key + "_bytes"] = json.loads(text)["ranks"][0]["size_bytes"]
        found["memory"] = max(found["memory"], memory)
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("memtrack")
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--ranks", type=int, default=16384)
    parser.add_argument("--gib", type=float, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        found = [measure(os.path.realpath(arguments.memtrack), file, Path(work), arguments.rounds) for file in arguments.files]
    print("| snapshot | size | events | bytes an event | `ranks` | export | with events | memory, of the size | rank | an event in it |")
    print("| --- | --: | --: | --: | --: | --: | --: | --: | --: | --: |")
    for one in found:
        rate = [f"{one['bytes'] / MB / one[key]:.0f} MB/s" for key in ("ranks", "export", "events")]
        print(f"| {one['name'].split('.')[0]} | {one['bytes'] / MB:.1f} MB | {one['events']:,} | {one['bytes'] / one['events']:.0f} | "
            f"{' | '.join(rate)} | {one['memory'] / MIB:.0f} MiB, {one['memory'] / one['bytes']:.1f} × | {one['export_bytes'] / 1024:.0f} KiB | "
            f"{(one['events_bytes'] - one['export_bytes']) / one['events']:.1f} B |")
    total = arguments.ranks * arguments.gib * GIB
    print(f"\n{arguments.ranks:,} ranks × {arguments.gib:g} GiB = {total / TIB:.2f} TiB\n")
    print("| by | events | core hours: `ranks` | export | with events | data set | with events |")
    print("| --- | --: | --: | --: | --: | --: | --: |")
    for one in found:
        times = total / one["bytes"]
        hours = [f"{times * one[key] / 3600:.1f}" for key in ("ranks", "export", "events")]
        events = (one["events_bytes"] - one["export_bytes"]) / one["events"] * times * one["events"]
        fixed = arguments.ranks * one["export_bytes"]
        print(f"| {one['name'].split('.')[0]} | {times * one['events'] / 1e9:.0f} G | {' | '.join(hours)} | {fixed / GIB:.2f} GiB | "
            f"{(fixed + events) / GIB:,.0f} GiB |")


if __name__ == "__main__":
    main()
