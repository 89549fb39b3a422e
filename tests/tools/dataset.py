#!/usr/bin/env python3
"""Opens the data sets of `memtrack export --parquet` with DuckDB and pyarrow: every table of generated ranks, each of
memtrack-cli/queries/*.sql, whose results must be those of `memtrack ranks --json`, and the files that a killed writer leaves. The
parsers of the other engines' dialects must accept the queries.

Usage: VENV/bin/python3 tests/tools/dataset.py MEMTRACK      (VENV: tests/tools/setup.sh)
"""

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
import sqlglot
import sqlglot.expressions

from dataset_checks import QUERIES, ROOT, TABLES, Checks, write_ranks

# Names that Trino accepts only in quotes, according to its documentation.
TRINO_RESERVED = set("""ALTER AND AS BETWEEN BY CASE CAST CONSTRAINT CREATE CROSS CUBE CURRENT_CATALOG CURRENT_DATE CURRENT_PATH
CURRENT_ROLE CURRENT_SCHEMA CURRENT_TIME CURRENT_TIMESTAMP CURRENT_USER DEALLOCATE DELETE DESCRIBE DISTINCT DROP ELSE END ESCAPE
EXCEPT EXECUTE EXISTS EXTRACT FALSE FOR FROM FULL GROUP GROUPING HAVING IN INNER INSERT INTERSECT INTO IS JOIN JSON_ARRAY
JSON_EXISTS JSON_OBJECT JSON_QUERY JSON_TABLE JSON_VALUE LEFT LIKE LISTAGG LOCALTIME LOCALTIMESTAMP NATURAL NORMALIZE NOT NULL ON OR
ORDER OUTER PREPARE RECURSIVE RIGHT ROLLUP SELECT SKIP TABLE THEN TRIM TRUE UESCAPE UNION UNNEST USING VALUES WHEN WHERE
WITH""".split())


def opened(folder):
    """Returns a DuckDB connection in a data set, with its tables."""
    os.chdir(folder)
    base = duckdb.connect()
    base.execute((QUERIES / "tables.duckdb.sql").read_text())
    return base


def rows(base, text):
    """Returns the rows of one of the queries, given as its text, as dictionaries."""
    answer = base.execute(text)
    names = [column[0] for column in answer.description]
    return [dict(zip(names, row)) for row in answer.fetchall()]


def dialects():
    """Checks that the queries are SQL in the dialects of all engines, and use no name that Trino reserves."""
    for file in sorted(QUERIES.glob("*.sql")):
        if file.name.startswith("tables."):
            continue
        for dialect in ("duckdb", "spark", "trino"):
            try:
                parsed = sqlglot.parse(file.read_text(), read=dialect, error_level=sqlglot.ErrorLevel.RAISE)
            except sqlglot.errors.ParseError as error:
                check(f"{file.name} is SQL of {dialect}", False, error)
                continue
            is_one = len(parsed) == 1 and isinstance(parsed[0], sqlglot.expressions.Select)
            check(f"{file.name} is one SELECT in {dialect}", is_one, parsed)
        names = {name.name.upper() for name in parsed[0].find_all(sqlglot.expressions.Identifier)}
        equal(f"{file.name}: names that Trino reserves", names & TRINO_RESERVED, set())


def tables(folder, ranks, events):
    """Checks that DuckDB and pyarrow read the same rows of each table."""
    base = opened(folder)
    documented = (ROOT / "docs" / "RANKS.md").read_text()
    for table in TABLES:
        count = base.execute(f"SELECT count(*), count(DISTINCT rank) FROM {table}").fetchone()
        files = sorted(Path(folder).glob(f"job=*/rank=*/{table}.parquet"))
        arrow = pyarrow.dataset.dataset(files, partitioning="hive").to_table()
        equal(f"{table}: rows in DuckDB and pyarrow", count[0], arrow.num_rows)
        if table in ("runs", "devices", "timeline", "groups", "live", "stacks", "frames") or (table == "events" and events):
            equal(f"{table}: ranks", count[1], ranks)
        for field in arrow.schema:
            check(f"{table}.{field.name} is in docs/RANKS.md", f"`{field.name}`" in documented)
    CHECKS.consistent(Path(folder).name, lambda query: base.execute(query).fetchone()[0])
    return base


def same_answers(name, files):
    """Checks that the SQL queries return the results of `memtrack ranks`."""
    folder = WORK / f"set {name}"
    memtrack("export", "--parquet", folder, "--job", "a job", *files)
    base = tables(folder, len(files), False)
    equal(f"{name}: jobs are decoded", base.execute("SELECT DISTINCT job FROM runs").fetchall(), [("a job",)])
    return CHECKS.same_answers(name, lambda text: rows(base, text), files)


def events(file):
    """Checks that --events exports every event, with its allocation."""
    folder = WORK / "events"
    memtrack("export", "--parquet", folder, "--events", file)
    base = tables(folder, 1, True)
    traces = pickle.load(open(file, "rb"))["device_traces"]
    expected = [(device, event["action"], event.get("addr"), event["size"], event.get("device_free"))
        for device, trace in enumerate(traces) for event in trace]
    found = base.execute("SELECT device, action, address, size_bytes, free_bytes FROM events ORDER BY event").fetchall()
    equal("events", found, expected)
    equal("frees refer to allocations of the same address and size", base.execute("""
        SELECT count(*) FROM events f JOIN events a ON a.event = f.alloc_event
        WHERE a.action = 'alloc' AND a.address = f.address AND a.size_bytes = f.size_bytes""").fetchone()[0],
        sum(event["action"].startswith("free") for trace in traces for event in trace))
    functions = base.execute("""SELECT function FROM events e JOIN stacks s USING (job, rank, stack)
        JOIN frames f USING (job, rank, frame) WHERE e.event = 2 ORDER BY depth""").fetchall()
    equal("the stack of an event", [name for (name,) in functions], [frame["name"] for frame in traces[0][2]["frames"]])
    check("lifetimes.sql has rows", rows(base, (QUERIES / "lifetimes.sql").read_text()))


def remains(files):
    """Checks that readers ignore the files of a killed writer, and that ranks can still be added."""
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
    check("pyarrow ignores it", not any(".tmp" in file for file in arrow.files), arrow.files)
    equal("DuckDB ignores it", walked, before)
    memtrack("export", "--parquet", folder, *files)
    equal("ranks are added to it", opened(folder).execute("SELECT count(*) FROM runs").fetchone()[0], len(files))


def kills(file):
    """Checks that a writer that is killed at any moment, and concurrent writers, leave one complete rank."""
    folder = WORK / "kills"
    command = [MEMTRACK, "export", "--parquet", str(folder), "--events", str(file)]
    start = time.monotonic()
    memtrack(*command[1:])
    duration = time.monotonic() - start
    count = f"SELECT count(*) FROM '{folder}/job=*/rank=*/events.parquet'"
    expected = duckdb.connect().execute(count).fetchone()
    for kill in range(30):
        writer = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        time.sleep(duration * kill / 25)
        writer.kill()
        writer.wait()
        equal(f"after kill {kill}", duckdb.connect().execute(count).fetchone(), expected)
    for writer in [subprocess.Popen(command, stderr=subprocess.DEVNULL) for _ in range(4)]:
        equal("one of four concurrent writers", writer.wait(), 0)
    equal("after four concurrent writers", duckdb.connect().execute(count).fetchone(), expected)
    equal("all tables exist", len(list(folder.glob("job=*/rank=*/*.parquet"))), len(TABLES))


def races(file):
    """Checks that if several files are exported concurrently as one rank, one succeeds and the others fail."""
    folder = WORK / "races"
    for race in range(10):
        files = [WORK / f"race{race}-{number}.pickle" for number in range(6)]
        for one in files:
            one.write_bytes(file.read_bytes())
        command = [MEMTRACK, "export", "--parquet", str(folder), "--job", str(race), "--rank", "7"]
        writers = [subprocess.Popen([*command, str(one)], stderr=subprocess.DEVNULL) for one in files]
        codes = [writer.wait() for writer in writers]
        equal(f"race {race}: exit codes", sorted(codes), [0] + [2] * (len(files) - 1))
        there = duckdb.connect().execute(f"SELECT source FROM '{folder}/job={race}/rank=*/runs.parquet'").fetchall()
        equal(f"race {race}: the exported file", there, [(str(files[codes.index(0)]),)])


def main():
    os.chdir(WORK)
    dialects()
    for name, ranks, steps, devices, odd in [
        ("one", 1, 3, 1, ()), ("two", 2, 3, 1, (1,)), ("equal", 5, 3, 1, ()), ("odd", 8, 6, 1, (3,)), ("even", 7, 5, 2, (0, 6)),
    ]:
        files = write_ranks(WORK / f"run-{name}", ranks, steps, devices, odd)
        report = same_answers(name, files)
        if name == "odd":
            check("there is an outlier", any(one["outliers"] for one in report["memories"]), report)
            events(files[3])
            remains(files)
            kills(files[3])
            races(files[3])
    real = ROOT.parent / "shared" / "oracle" / "snapshots" / "real"
    if real.is_dir():
        folder = WORK / "run-real"
        folder.mkdir()
        files = []
        for rank, file in enumerate(sorted(real.glob("*.pickle.gz"))):
            files.append(folder / f"rank{rank}.pickle.gz")
            files[-1].symlink_to(file)
        same_answers("real", files)
    else:
        print(f"left out: {real} does not exist")


if len(sys.argv) != 2:
    sys.exit(__doc__)
MEMTRACK = str(Path(sys.argv[1]).resolve())
CHECKS = Checks(MEMTRACK)
check, equal, memtrack = CHECKS.check, CHECKS.equal, CHECKS.memtrack
with tempfile.TemporaryDirectory() as work:
    WORK = Path(work).resolve()
    main()
    os.chdir(ROOT)
sys.exit(CHECKS.closing_line())
