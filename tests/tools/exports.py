#!/usr/bin/env python3
"""Opens the exports of `memtrack convert` in the tools they are for, and compares the results with memtrack's reports:
pprof in `go tool pprof`, the table of blocks in Python's csv and DuckDB, the table of events in DuckDB and pyarrow, speedscope in
its page in Chromium.

Usage: tests/tools/setup.sh WORK && WORK/venv/bin/python3 tests/tools/exports.py MEMTRACK WORK [FILE...]
Files are recordings and snapshots; without any, PyTorch fixtures with one device and with several.
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
    """Returns a command's output; raises an error with its stderr if it fails."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, encoding="utf-8")
    if done.returncode:
        raise AssertionError(f"{' '.join(map(str, command))}: {done.stderr.strip()}")
    return done.stdout


class Reports:
    """memtrack's reports on a file: (blocks, bytes) of each device."""

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
        # If sampling began after the peak, the peak is exact, and sums over all blocks are not.
        self.estimated = {name for name, one in peaks.items() if one["highest"]["estimated"]}
        self.estimated |= {name for name, one in ranked.items() if any(row["estimated"] for row in one["rows"])}
        self.devices = sorted(self.allocated.keys() | self.peak.keys())


def pprof_top(profile, index, *more):
    """Returns the sum of `go tool pprof -top`, and its text."""
    unit = ["-unit=B"] if index.endswith("space") else []
    text = run("go", "tool", "pprof", "-top", "-nodefraction=0", "-nodecount=100000", f"-sample_index={index}", *unit, *more, profile)
    found = re.search(r"Showing nodes accounting for (-?\d+)B?, .* of (-?\d+)B? total", text)
    assert found, text[:500]
    return int(found[1]), text


def agree(found, expected, estimated):
    """Returns whether two numbers agree. If small blocks were sampled, files have estimates, and reports the recorder's counts."""
    return found == expected or (estimated and abs(found - expected) <= 0.3 * expected + 1)


def pprof(memtrack, file, reports, folder):
    """Checks the sums of the four types by device, and the error in the comments."""
    profile = folder / "a.pb.gz"
    run(memtrack, "convert", file, profile, "--force")
    for index, (blocks, space) in enumerate([("alloc_objects", "alloc_space"), ("inuse_objects", "inuse_space")]):
        expected = (reports.allocated, reports.peak)[index]
        for device in reports.devices:
            focus = f"-tagfocus=device=^{device}$"
            count, size = expected.get(device, (0, 0))
            found, _ = pprof_top(profile, space, focus)
            estimated = device in reports.estimated
            assert agree(found, size, estimated), f"{device} {space}: {found}, expected {size}"
            found, _ = pprof_top(profile, blocks, focus)
            assert agree(found, count, estimated), f"{device} {blocks}: {found}, expected {count}"
    # The default type.
    text = run("go", "tool", "pprof", "-top", "-unit=B", profile)
    assert "Type: inuse_space" in text, text[:300]
    comments = run("go", "tool", "pprof", "-comments", profile)
    for device in reports.devices:
        has_comment = f"{device}: small blocks were sampled" in comments
        assert has_comment == (device in reports.estimated), comments


def peak_of_table(folder):
    """Returns the highest sum of live bytes by device, and the event that reached it, from the rows alone."""
    query = """
        with ends as (
          -- DuckDB infers text for a column without values.
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


def table(memtrack, file, reports, folder):
    """Checks the sums and peaks of the table of blocks, in Python's csv and DuckDB."""
    run(memtrack, "convert", file, folder / "a.csv", "--force")
    sums, rows = defaultdict(lambda: [0.0, 0]), 0
    with open(folder / "a.csv", encoding="utf-8", newline="") as text:
        for row in csv.DictReader(text, strict=True):
            rows += 1
            assert None not in row and None not in row.values(), row
            if row["older_than_trace"] == "false":
                sums[row["device_name"]][0] += float(row["blocks"])
                sums[row["device_name"]][1] += round(int(row["requested_bytes"]) * float(row["blocks"]))
    for device, (count, size) in reports.allocated.items():
        for found, expected in [(round(sums[device][0]), count), (sums[device][1], size)]:
            assert agree(found, expected, device in reports.estimated), f"{device}: {sums[device]}, expected {count}, {size}"
    base, peaks = peak_of_table(folder)
    assert base.execute("select count(*) from blocks").fetchone() == (rows,)
    kinds = dict(base.execute("select column_name, column_type from (describe blocks)").fetchall())
    assert kinds["requested_bytes"] == "BIGINT" and kinds["estimated"] == "BOOLEAN", kinds
    for device, (_, size) in reports.peak.items():
        event = reports.events[device]
        expected = (size, -1 if event is None else event)
        # The peak of a table of estimates is the highest estimate, which does not determine the counted peak.
        assert peaks[device] == expected or device in reports.estimated, f"{device}: {peaks[device]}, expected {expected}"


def events(memtrack, file, reports, folder):
    """Checks the table of events in DuckDB and pyarrow: its allocations and frees match the table of blocks."""
    run(memtrack, "convert", file, folder / "a.parquet", "--force")
    run(memtrack, "convert", file, folder / "a.csv", "--force")
    base, _ = peak_of_table(folder)
    base.execute(f"create view events as select * from '{folder / 'a.parquet'}'")
    documented = (TESTS.parent / "docs" / "RANKS.md").read_text(encoding="utf-8")
    arrow = pyarrow.parquet.read_table(folder / "a.parquet")
    assert base.execute("select count(*) from events").fetchone() == (arrow.num_rows,) and arrow.num_rows
    for column in arrow.column_names:
        assert f"`{column}`" in documented, f"{column} is not in docs/RANKS.md"
    # Sums decimals: the last digit of a sum of floating-point numbers depends on their order.
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
    # Exports one device, to a pipe.
    device = reports.devices[0]
    option = {"host heap": "host", "pinned host memory": "pinned"}.get(device, device.removeprefix("device "))
    piped = subprocess.run([memtrack, "convert", file, "-", "--to", "parquet", "--device", option], capture_output=True, check=True)
    (folder / "one.parquet").write_bytes(piped.stdout)
    found = base.execute(f"select event, line, alloc_event from '{folder / 'one.parquet'}'").fetchall()
    expected = base.execute("""select event, line, alloc_event from events join (select distinct device, device_name from blocks)
        using (device) where device_name = ? order by event""", [device]).fetchall()
    assert found == expected and found, f"{device}: {len(found)} events, expected {len(expected)}"


def speedscope(memtrack, file, reports, folder, work):
    """Checks the names and totals of the profiles that the page shows."""
    path = folder / "a.speedscope.json"
    run(memtrack, "convert", file, path, "--force")
    pages = json.loads(run("node", TESTS / "tools/speedscope.mjs", work / "npm", path))
    expected = {}
    for device in reports.devices:
        for title, sums in [("in use at the peak", reports.peak), ("in use at the end", reports.end), ("allocated in all", reports.allocated)]:
            if device in sums and sums[device][1]:
                expected[f"{device}: {title}"] = sums[device][1]
    found = {page["name"].split(",")[0].lower(): page["total"] for page in pages}
    assert found.keys() == expected.keys(), f"{sorted(found)}, expected {sorted(expected)}"
    written = {one["name"].split(",")[0].lower(): sum(one["weights"]) for one in json.loads(path.read_text())["profiles"]}
    for name, size in expected.items():
        estimated = name.rsplit(":", 1)[0] in reports.estimated
        assert agree(written[name], size, estimated), f"{name}: {written[name]} in the file, expected {size} bytes"
        # The page rounds each function's size to two decimals, and the smallest of many functions are not visible.
        size = written[name]
        assert abs(found[name] - size) <= size * 0.01 + 10, f"{name}: {found[name]}, expected {size} bytes"


def main():
    memtrack, work = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    files = [Path(name).resolve() for name in sys.argv[3:]] or FIXTURES
    folder = work / "exports"
    folder.mkdir(parents=True, exist_ok=True)
    passed = failed = 0
    for file in files:
        reports = Reports(memtrack, file)
        checks = [
            ("pprof", lambda: pprof(memtrack, file, reports, folder)),
            ("csv", lambda: table(memtrack, file, reports, folder)),
            ("parquet", lambda: events(memtrack, file, reports, folder)),
            ("speedscope", lambda: speedscope(memtrack, file, reports, folder, work)),
        ]
        for name, check in checks:
            try:
                check()
                passed += 1
            except Exception as why:  # noqa: BLE001 - the other checks run after any error
                failed += 1
                print(f"FAILED {file.name} {name}: {type(why).__name__}: {why}")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
