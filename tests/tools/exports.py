#!/usr/bin/env python3
"""Opens what `memtrack convert` writes by the tools it is for, and compares what they say with memtrack's own reports:
pprof by `go tool pprof`, the table of blocks by Python's csv and by DuckDB, that of events by DuckDB and pyarrow, speedscope by
its own page in Chromium.

Usage: tests/tools/setup.sh WORK && WORK/venv/bin/python3 tests/tools/exports.py MEMTRACK WORK [FILE...]
Files are recordings and snapshots; without any, fixtures of PyTorch's with one device and with several.
"""

import csv
import json
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import duckdb
import pyarrow.parquet

TESTS = Path(__file__).resolve().parent.parent
FIXTURES = [TESTS / "fixtures/snapshots/samples" / f"{name}.pickle" for name in ("multi-gpu", "wrapped", "host-pinned")]


def run(*command):
    """What a command prints; an error with what it complained of, if it fails."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, encoding="utf-8")
    if done.returncode:
        raise AssertionError(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return done.stdout


class Told:
    """What memtrack itself says of a file: (blocks, bytes) of each device."""

    def __init__(self, memtrack, file):
        def answers(*verb):
            devices = json.loads(run(memtrack, *verb, file, "--json"))["devices"]
            return {one["device"]["name"]: one for one in devices}

        def totals(devices):
            sums = {name: one["totals"] for name, one in devices.items()}
            return {name: (one["count"], one["requested_bytes"]) for name, one in sums.items() if one["count"]}

        ranked, peaks = answers("top", "--by", "stack", "-n", "0"), answers("peak", "-n", "1")
        self.allocated = totals(ranked)
        self.peak = totals(peaks)
        self.end = totals(answers("top", "--by", "stack", "--at", "end", "-n", "1"))
        self.events = {name: one["highest"]["event"] for name, one in peaks.items()}
        # Where sampling began after the peak, the peak is exact, and sums over all blocks are not.
        self.estimated = {name for name, one in peaks.items() if one["highest"]["estimated"]}
        self.estimated |= {name for name, one in ranked.items() if any(row["estimated"] for row in one["rows"])}
        self.devices = sorted(self.allocated.keys() | self.peak.keys())


def shown(profile, index, *more):
    """What `go tool pprof -top` adds up, and what it prints above the table."""
    unit = ["-unit=B"] if index.endswith("space") else []
    text = run("go", "tool", "pprof", "-top", "-nodefraction=0", "-nodecount=100000", f"-sample_index={index}", *unit, *more, profile)
    found = re.search(r"Showing nodes accounting for (-?\d+)B?, .* of (-?\d+)B? total", text)
    assert found, text[:500]
    return int(found[1]), text


def alike(found, expected, estimated):
    """Whether two numbers are one. Where small blocks were sampled, files hold estimates and reports what was counted."""
    return found == expected or (estimated and abs(found - expected) <= 0.3 * expected + 1)


def pprof(memtrack, file, told, folder):
    """Sums of the four types by device, and the error in the comments."""
    profile = folder / "a.pb.gz"
    run(memtrack, "convert", file, profile, "--force")
    for place, (blocks, space) in enumerate([("alloc_objects", "alloc_space"), ("inuse_objects", "inuse_space")]):
        expected = (told.allocated, told.peak)[place]
        for device in told.devices:
            focus = f"-tagfocus=device=^{device}$"
            many, size = expected.get(device, (0, 0))
            found, _ = shown(profile, space, focus)
            estimated = device in told.estimated
            assert alike(found, size, estimated), f"{device} {space}: {found}, expected {size}"
            found, _ = shown(profile, blocks, focus)
            assert alike(found, many, estimated), f"{device} {blocks}: {found}, expected {many}"
    # What is shown when nothing is asked for, and the same with frames of one's own choice.
    text = run("go", "tool", "pprof", "-top", "-unit=B", profile)
    assert "Type: inuse_space" in text, text[:300]
    comments = run("go", "tool", "pprof", "-comments", profile)
    for device in told.devices:
        says = f"{device}: small blocks were sampled" in comments
        assert says == (device in told.estimated), comments


def peak_of_table(folder):
    """The highest sum of live bytes by device, and the event that reached it, from the rows alone."""
    query = """
        with ends as (
          -- A column without any value is taken for text.
          select *, coalesce(free_requested_event::bigint, free_completed_event::bigint) freed_event
          from blocks),
        changes as (
          select device_name, coalesce(allocated_event::bigint, -1) event, round(requested_bytes * blocks) bytes from ends
          union all
          select device_name, freed_event, -round(requested_bytes * blocks) from ends where freed_event is not null),
        sums as (select device_name, event, sum(bytes) bytes from changes group by all),
        live as (select device_name, event, sum(bytes) over (partition by device_name order by event) bytes from sums)
        select device_name, max(bytes), arg_max(event, (bytes, -event)) from live group by device_name"""
    base = duckdb.connect()
    base.execute("create table blocks as select * from read_csv(?)", [str(folder / "a.csv")])
    return base, {name: (int(size), int(event)) for name, size, event in base.execute(query).fetchall()}


def table(memtrack, file, told, folder):
    """Sums and peaks of the table of blocks, by Python's csv and by DuckDB."""
    run(memtrack, "convert", file, folder / "a.csv", "--force")
    sums, rows = defaultdict(lambda: [0.0, 0]), 0
    with open(folder / "a.csv", encoding="utf-8", newline="") as text:
        for row in csv.DictReader(text, strict=True):
            rows += 1
            assert None not in row and None not in row.values(), row
            if row["older_than_trace"] == "false":
                sums[row["device_name"]][0] += float(row["blocks"])
                sums[row["device_name"]][1] += round(int(row["requested_bytes"]) * float(row["blocks"]))
    for device, (many, size) in told.allocated.items():
        for found, expected in [(round(sums[device][0]), many), (sums[device][1], size)]:
            assert alike(found, expected, device in told.estimated), f"{device}: {sums[device]}, expected {many}, {size}"
    base, peaks = peak_of_table(folder)
    assert base.execute("select count(*) from blocks").fetchone() == (rows,)
    kinds = dict(base.execute("select column_name, column_type from (describe blocks)").fetchall())
    assert kinds["requested_bytes"] == "BIGINT" and kinds["estimated"] == "BOOLEAN", kinds
    for device, (_, size) in told.peak.items():
        event = told.events[device]
        # Rounding may make another event of equal height the first.
        expected = (size, -1 if event is None else event)
        # That of a table of estimates is the highest of them, and says nothing of the counted one.
        assert peaks[device] == expected or device in told.estimated, f"{device}: {peaks[device]}, expected {expected}"


def events(memtrack, file, told, folder):
    """The table of events in DuckDB and pyarrow: its allocations and frees are those of the table of blocks."""
    run(memtrack, "convert", file, folder / "a.parquet", "--force")
    run(memtrack, "convert", file, folder / "a.csv", "--force")
    base, _ = peak_of_table(folder)
    base.execute(f"create view events as select * from '{folder / 'a.parquet'}'")
    documented = (TESTS.parent / "docs" / "RANKS.md").read_text(encoding="utf-8")
    arrow = pyarrow.parquet.read_table(folder / "a.parquet")
    assert base.execute("select count(*) from events").fetchone() == (arrow.num_rows,) and arrow.num_rows
    for column in arrow.column_names:
        assert f"`{column}`" in documented, f"{column} is not in docs/RANKS.md"
    # As decimals: the last digit of a sum of floating-point numbers depends on their order.
    sums = "device, coalesce({0}::text, '') place, count(*), sum(blocks::decimal(38, 12)), sum(size) from {1} group by all order by all"
    of_blocks = "(select *, requested_bytes size from blocks where not older_than_trace)"
    of_events = "(select *, size_bytes size from events where action = 'alloc')"
    for place in ("line", "called"):
        found = base.execute("select " + sums.format(place, of_events)).fetchall()
        expected = base.execute("select " + sums.format(place, of_blocks)).fetchall()
        assert found == expected, f"{place}: {found}, expected {expected}"
    found = base.execute("""select f.device, count(*) from events f join events a on a.event = f.alloc_event
        where f.action in ('free', 'free_completed') and a.action = 'alloc' and a.address = f.address
        group by all order by all""").fetchall()
    expected = base.execute("""select device, count(*) from blocks
        where not older_than_trace and free_completed_event is not null group by all order by all""").fetchall()
    assert found == expected, f"frees: {found}, expected {expected}"
    # Of one device, and to a pipe.
    device = told.devices[0]
    option = {"host heap": "host", "pinned host memory": "pinned"}.get(device, device.removeprefix("device "))
    piped = subprocess.run([memtrack, "convert", file, "-", "--to", "parquet", "--device", option], capture_output=True, check=True)
    (folder / "one.parquet").write_bytes(piped.stdout)
    found = base.execute(f"select event, line, alloc_event from '{folder / 'one.parquet'}'").fetchall()
    expected = base.execute("""select event, line, alloc_event from events join (select distinct device, device_name from blocks)
        using (device) where device_name = ? order by event""", [device]).fetchall()
    assert found == expected and found, f"{device}: {len(found)} events, expected {len(expected)}"


def speedscope(memtrack, file, told, folder, work):
    """The names and totals of the profiles, as the page shows them."""
    path = folder / "a.speedscope.json"
    run(memtrack, "convert", file, path, "--force")
    pages = json.loads(run("node", TESTS / "tools/speedscope.mjs", work / "npm", path))
    expected = {}
    for device in told.devices:
        for what, sums in [("in use at the peak", told.peak), ("in use at the end", told.end), ("allocated in all", told.allocated)]:
            if device in sums and sums[device][1]:
                expected[f"{device}: {what}"] = sums[device][1]
    found = {page["name"].split(",")[0].lower(): page["total"] for page in pages}
    assert found.keys() == expected.keys(), f"{sorted(found)}, expected {sorted(expected)}"
    written = {one["name"].split(",")[0].lower(): sum(one["weights"]) for one in json.loads(path.read_text())["profiles"]}
    for name, size in expected.items():
        estimated = name.rsplit(":", 1)[0] in told.estimated
        assert alike(written[name], size, estimated), f"{name}: {written[name]} in the file, expected {size} bytes"
        # The page prints two digits behind the point of each function, and of many the smallest are out of sight.
        size = written[name]
        assert abs(found[name] - size) <= size * 0.01 + 10, f"{name}: {found[name]}, expected {size} bytes"


def main():
    memtrack, work = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    files = [Path(name).resolve() for name in sys.argv[3:]] or FIXTURES
    folder = work / "exports"
    folder.mkdir(parents=True, exist_ok=True)
    passed = failed = 0
    for file in files:
        told = Told(memtrack, file)
        checks = [
            ("pprof", lambda: pprof(memtrack, file, told, folder)),
            ("csv", lambda: table(memtrack, file, told, folder)),
            ("parquet", lambda: events(memtrack, file, told, folder)),
            ("speedscope", lambda: speedscope(memtrack, file, told, folder, work)),
        ]
        for name, check in checks:
            try:
                check()
                passed += 1
            except Exception as why:  # noqa: BLE001 - whatever it is, the others are checked too
                failed += 1
                print(f"FAILED {file.name} {name}: {type(why).__name__}: {why}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
