#!/usr/bin/env python3
"""Opens the data sets that `memtrack export --parquet` writes, with DuckDB and pyarrow: every table of generated ranks, each of
memtrack-cli/queries/*.sql, whose answers must be those of `memtrack ranks --json`, and what a killed writer leaves.

Usage: VENV/bin/python3 tests/tools/dataset.py MEMTRACK [--engine memtrack]      (VENV: tests/tools/setup.sh)
With --engine memtrack, `memtrack sql` answers the queries, which MEMTRACK must be built with (feature `sql`), and each answer is
DuckDB's too.
"""

import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import duckdb
import pyarrow.dataset
import pyarrow.parquet

ROOT = Path(__file__).resolve().parents[2]
QUERIES = ROOT / "memtrack-cli" / "queries"
TABLES = ["runs", "devices", "timeline", "groups", "steps", "out_of_memory", "live", "stacks", "frames", "events"]
MIB = 1 << 20
passed, failed = 0, 0


def check(what, is_so, why=""):
    """Counts a check, and names it if it fails."""
    global passed, failed
    if is_so:
        passed += 1
    else:
        failed += 1
        print(f"FAILED: {what}\n  {str(why)[:1500]}")


def equal(what, found, expected):
    check(what, found == expected, f"found    {found}\n  expected {expected}")


def snapshot(rank, steps, devices, outlier):
    """A training run on `devices`: each step allocates and frees; the outlier keeps one block of every step, and more."""
    frames = {
        name: [{"name": name, "filename": f"/app/{name}.py", "line": 10 + at}, {"name": "step", "filename": "/app/train.py", "line": 7}]
        for at, name in enumerate(["weights", "forward", "loss", "cache"])
    }
    segments, traces, annotations = [], [], []
    for device in range(devices):
        trace, time = [], 1_700_000_000_000_000 + 1000 * rank
        base = (device + 1) << 40

        def event(action, address, size, name):
            nonlocal time
            time += 13 + (7 * rank + len(trace)) % 5
            trace.append(dict(action=action, addr=address, size=size, stream=0, time_us=time, frames=frames[name]))

        def free(address, size, name):
            event("free_requested", address, size, name)
            event("free_completed", address, size, name)

        reserved = (200 + 8 * steps * outlier) * MIB
        event("segment_alloc", base, reserved, "weights")
        event("alloc", base, 40 * MIB, "weights")
        live = [(base, 40 * MIB)]
        for step in range(steps):
            if device == 0:
                annotations.append(dict(name=f"ProfilerStep#{step}", stage="START", time_us=time, device=0))
            size = (20 + rank % 3 + step) * MIB
            event("alloc", base + 64 * MIB, size, "forward")
            if outlier:
                kept = base + (200 + 8 * step) * MIB
                event("alloc", kept, 7 * MIB, "cache")
                live.append((kept, 7 * MIB))
            event("alloc", base + 128 * MIB, 3 * MIB + 512 * rank, "loss")
            free(base + 64 * MIB, size, "forward")
            free(base + 128 * MIB, 3 * MIB + 512 * rank, "loss")
            if device == 0:
                annotations.append(dict(name=f"ProfilerStep#{step}", stage="END", time_us=time, device=0))
        if outlier:
            trace.append(dict(action="oom", device_free=123456, size=1 << 40, stream=0, time_us=time, frames=[]))
        blocks, at = [], base
        for address, size in live:
            if address > at:
                blocks.append(dict(address=at, size=address - at, requested_size=0, state="inactive", frames=[]))
            blocks.append(dict(address=address, size=size, requested_size=size, state="active_allocated", frames=[]))
            at = address + size
        blocks.append(dict(address=at, size=base + reserved - at, requested_size=0, state="inactive", frames=[]))
        held = sum(size for _, size in live)
        segments.append(dict(device=device, address=base, total_size=reserved, allocated_size=held, active_size=held,
            requested_size=held, stream=0, segment_type="large", segment_pool_id=(0, 0), is_expandable=False, frames=[], blocks=blocks))
        traces.append(trace)
    return dict(segments=segments, device_traces=traces, allocator_settings={}, external_annotations=annotations)


def memtrack(*arguments, code=0):
    done = subprocess.run([MEMTRACK, *map(str, arguments)], capture_output=True, text=True)
    check(f"memtrack {arguments[0]} ends with {code}", done.returncode == code, (arguments, done.returncode, done.stderr))
    return done


def opened(folder):
    """DuckDB in a data set, with its tables."""
    os.chdir(folder)
    base = duckdb.connect()
    base.execute((QUERIES / "tables.duckdb.sql").read_text())
    return base


def rows(base, query):
    """The rows of a query as dictionaries."""
    answer = base.execute((QUERIES / f"{query}.sql").read_text())
    names = [column[0] for column in answer.description]
    found = [dict(zip(names, row)) for row in answer.fetchall()]
    if ENGINE == "duckdb":
        return found
    # The data set is the working folder.
    said = json.loads(memtrack("sql", "--json", "--query", query, ".").stdout)
    equal(f"columns of {query}.sql", [column["name"] for column in said["columns"]], names)

    def comparable(row):
        # Sums of fractions depend on their order.
        return str([f"{value:.9g}" if isinstance(value, float) else value for value in row.values()])

    equal(f"{query}.sql is DuckDB's", sorted(map(comparable, said["rows"])), sorted(map(comparable, found)))
    return said["rows"]


def tables(folder, ranks, events):
    """Each table is there for DuckDB and pyarrow, with the same rows."""
    base = opened(folder)
    documented = (ROOT / "docs" / "PARQUET.md").read_text()
    for table in TABLES:
        count = base.execute(f"SELECT count(*), count(DISTINCT rank) FROM {table}").fetchone()
        files = sorted(Path(folder).glob(f"job=*/rank=*/{table}.parquet"))
        arrow = pyarrow.dataset.dataset(files, partitioning="hive").to_table()
        equal(f"{table}: rows in DuckDB and pyarrow", count[0], arrow.num_rows)
        if table in ("runs", "devices", "timeline", "groups", "live", "stacks", "frames") or (table == "events" and events):
            equal(f"{table}: ranks", count[1], ranks)
        for field in arrow.schema:
            check(f"{table}.{field.name} is in docs/PARQUET.md", f"`{field.name}`" in documented)
    equal("frames of stacks are there", base.execute(
        "SELECT count(*) FROM stacks s ANTI JOIN frames f USING (job, rank, frame)").fetchone()[0], 0)
    equal("stacks of what is live are there", base.execute(
        "SELECT count(*) FROM live l ANTI JOIN stacks s USING (job, rank, stack) WHERE stack <> 0").fetchone()[0], 0)
    equal("what is live adds up to the peak", base.execute("""
        SELECT count(*) FROM devices d WHERE peak_bytes <> coalesce((SELECT sum(bytes) FROM live l WHERE l.job = d.job
        AND l.rank = d.rank AND l.device = d.device AND moment = 'peak'), 0)""").fetchone()[0], 0)
    equal("the timeline's highest is the peak", base.execute("""
        SELECT count(*) FROM devices d WHERE peak_bytes <> coalesce((SELECT max(live_bytes) FROM timeline l
        WHERE l.job = d.job AND l.rank = d.rank AND l.device = d.device), 0)""").fetchone()[0], 0)
    return base


def same_answers(name, files):
    """The SQL's answers are those of `memtrack ranks`."""
    folder = WORK / f"set {name}"
    memtrack("export", "--parquet", folder, "--job", "a job", *files)
    base = tables(folder, len(files), False)
    said = json.loads(memtrack("ranks", "--json", *files).stdout)

    equal(f"{name}: jobs are decoded", base.execute("SELECT DISTINCT job FROM runs").fetchall(), [("a job",)])
    expected = [
        (rank["rank"], device["device"]["name"], device["peak"]["requested_bytes"], device["peak"]["seconds"], device["peak"]["phase"],
         device["peak"]["operator"], device["reserved"] and device["reserved"]["reserved_bytes"], device["waste_bytes"],
         device["end_requested_bytes"], device["out_of_memory_count"])
        for rank in said["ranks"] for device in rank["devices"]
    ]
    found = [tuple(row.values())[1:] for row in rows(base, "ranks")]
    equal(f"{name}: ranks.sql", sorted(found, key=str), sorted(expected, key=str))

    def memory(one):
        return one["device"]["name"]

    expected = [
        (memory(one), measure["measure"], measure["ranks"], measure["median_bytes"], measure["deviation_bytes"], measure["tolerance_bytes"])
        for one in said["memories"] for measure in one["measures"]
    ]
    found = [tuple(row.values())[1:] for row in rows(base, "usual")]
    equal(f"{name}: usual.sql", sorted(found), sorted(expected))

    expected, reasons = [], []
    for one in said["memories"]:
        for odd in one["outliers"]:
            expected.append((memory(one), odd["rank"], odd["measure"], odd["own_bytes"], odd["median_bytes"], odd["change_bytes"]))
            for why in odd["why"]:
                reasons.append((memory(one), odd["rank"], odd["measure"], why["key"], why["own_bytes"], why["own_count"],
                    why["median_bytes"], why["change_bytes"], why["other_ranks"]))
    found = [tuple(row.values())[1:] for row in rows(base, "outliers")]
    equal(f"{name}: outliers.sql", sorted(found), sorted(expected))
    found = [tuple(value for key, value in row.items() if key not in ("job", "name")) for row in rows(base, "why")]
    equal(f"{name}: why.sql", sorted(found), sorted(reasons))

    expected = [
        (memory(one), step["number"], step["ranks"], step["median_bytes"], step["most_bytes"],
         None if step["highest"] is None else said["ranks"][step["highest"]]["rank"], step["end_median_bytes"], step["end_most_bytes"])
        for one in said["memories"] for step in (one["skew"] or {"steps": []})["steps"]
    ]
    found = [tuple(row.values())[1:-1] for row in rows(base, "skew")]
    equal(f"{name}: skew.sql", sorted(found, key=str), sorted(expected, key=str))

    for query in ("timeline", "stacks", "lifetimes"):
        answer = rows(base, query)
        check(f"{name}: {query}.sql answers", query == "lifetimes" or answer, answer)
    return said


def events(file):
    """With --events every event is there, and names its allocation."""
    folder = WORK / "events"
    memtrack("export", "--parquet", folder, "--events", file)
    base = tables(folder, 1, True)
    traces = pickle.load(open(file, "rb"))["device_traces"]
    expected = [(device, event["action"], event.get("addr"), event["size"], event.get("device_free"))
        for device, trace in enumerate(traces) for event in trace]
    found = base.execute("SELECT device, action, address, size_bytes, free_bytes FROM events ORDER BY event").fetchall()
    equal("events", found, expected)
    equal("frees name allocations of their address and size", base.execute("""
        SELECT count(*) FROM events f JOIN events a ON a.event = f.alloc_event
        WHERE a.action = 'alloc' AND a.address = f.address AND a.size_bytes = f.size_bytes""").fetchone()[0],
        sum(event["action"].startswith("free") for trace in traces for event in trace))
    functions = base.execute("""SELECT function FROM events e JOIN stacks s USING (job, rank, stack)
        JOIN frames f USING (job, rank, frame) WHERE e.event = 2 ORDER BY depth""").fetchall()
    equal("the stack of an event", [name for (name,) in functions], [frame["name"] for frame in traces[0][2]["frames"]])
    check("lifetimes.sql answers", rows(base, "lifetimes"))


def remains(files):
    """What a killed writer leaves is seen by nobody, and goes with the folder."""
    folder = WORK / "killed"
    memtrack("export", "--parquet", folder, *files[:2])
    job = next(folder.iterdir())
    left = job / ".rank=0.4711-0.memtrack.tmp"
    left.mkdir()
    for table in ("devices", "runs"):
        (left / f"{table}.parquet.tmp").write_bytes(b"PAR1 half")
    before = opened(folder).execute("SELECT count(*) FROM devices").fetchone()
    walked = duckdb.connect().execute(f"SELECT count(*) FROM '{folder}/**/devices.parquet'").fetchone()
    arrow = pyarrow.dataset.dataset(folder, format="parquet", partitioning="hive", ignore_prefixes=[".", "_"])
    check("pyarrow passes over it", not any(".tmp" in file for file in arrow.files), arrow.files)
    equal("DuckDB passes over it", walked, before)
    memtrack("export", "--parquet", folder, *files)
    equal("ranks are added to it", opened(folder).execute("SELECT count(*) FROM runs").fetchone()[0], len(files))


def kills(file):
    """A writer that is killed at any moment, and two at once, leave a whole rank and nothing doubled."""
    folder = WORK / "kills"
    command = [MEMTRACK, "export", "--parquet", str(folder), "--events", str(file)]
    begun = time.monotonic()
    memtrack(*command[1:])
    whole = time.monotonic() - begun
    count = f"SELECT count(*) FROM '{folder}/job=*/rank=*/events.parquet'"
    expected = duckdb.connect().execute(count).fetchone()
    for kill in range(30):
        writer = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        time.sleep(whole * kill / 25)
        writer.kill()
        writer.wait()
        equal(f"after kill {kill}", duckdb.connect().execute(count).fetchone(), expected)
    for writer in [subprocess.Popen(command, stderr=subprocess.DEVNULL) for _ in range(4)]:
        equal("one of four writers at once", writer.wait(), 0)
    equal("after four writers at once", duckdb.connect().execute(count).fetchone(), expected)
    equal("tables are all there", len(list(folder.glob("job=*/rank=*/*.parquet"))), len(TABLES))


def main():
    os.chdir(WORK)
    for name, ranks, steps, devices, odd in [
        ("one", 1, 3, 1, ()), ("two", 2, 3, 1, (1,)), ("equal", 5, 3, 1, ()), ("odd", 8, 6, 1, (3,)), ("even", 7, 5, 2, (0, 6)),
    ]:
        folder = WORK / f"run-{name}"
        folder.mkdir()
        files = []
        for rank in range(ranks):
            files.append(folder / f"rank{rank}.pickle")
            with open(files[-1], "wb") as file:
                pickle.dump(snapshot(rank, steps, devices, rank in odd), file)
        said = same_answers(name, files)
        if name == "odd":
            check("somebody is odd", any(one["outliers"] for one in said["memories"]), said)
            events(files[3])
            remains(files)
            kills(files[3])
    real = ROOT.parent / "shared" / "oracle" / "snapshots" / "real"
    if real.is_dir():
        folder = WORK / "run-real"
        folder.mkdir()
        files = []
        for rank, file in enumerate(sorted(real.glob("*.pickle.gz"))):
            files.append(folder / f"rank{rank}.pickle.gz")
            files[-1].symlink_to(file)
        same_answers("real", files)


if len(sys.argv) not in (2, 4) or sys.argv[2:3] not in ([], ["--engine"]) or sys.argv[3:] not in ([], ["memtrack"]):
    sys.exit(__doc__)
ENGINE = sys.argv[3] if len(sys.argv) == 4 else "duckdb"
MEMTRACK = str(Path(sys.argv[1]).resolve())
with tempfile.TemporaryDirectory() as work:
    WORK = Path(work).resolve()
    main()
    os.chdir(ROOT)
print(f"{passed} passed, {failed} failed")
sys.exit(1 if failed or not passed else 0)
