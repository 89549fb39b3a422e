#!/usr/bin/env python3
"""Runs `memtrack sql` as a user does: forms of the output, forms of the query, errors in the query and in the files, forbidden
queries, and the bound on memory. `dataset.py MEMTRACK --engine memtrack` checks that its results are DuckDB's.

It is run by hand, because the engine takes minutes to build; MEMTRACK is the command with its feature `sql`:
  cargo build --release -p memtrack-cli --no-default-features --features parquet,sql
  tests/tools/setup.sh WORK
  WORK/venv/bin/python3 tests/tools/sql.py target/release/memtrack
  WORK/venv/bin/python3 tests/tools/dataset.py target/release/memtrack --engine memtrack
"""

import csv
import io
import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TABLES = ["runs", "devices", "timeline", "groups", "steps", "out_of_memory", "live", "stacks", "frames", "events"]
RANKS = 4
passed, failed = 0, 0


def check(what, is_so, why=""):
    """Counts a check, and prints it if it fails."""
    global passed, failed
    if is_so:
        passed += 1
    else:
        failed += 1
        print(f"FAILED: {what}\n  {str(why)[:1500]}")


def equal(what, found, expected):
    check(what, found == expected, f"found    {found}\n  expected {expected}")


def sql(*arguments, code=0, stdin="", width=None):
    """Runs a query that must end with `code`; returns its output, or its error if it must fail."""
    environment = {**os.environ, "COLUMNS": str(width or 120)}
    done = subprocess.run([MEMTRACK, "sql", *map(str, arguments)], capture_output=True, text=True, input=stdin, env=environment)
    check(f"{arguments} ends with {code}", done.returncode == code, (done.returncode, done.stdout[:300], done.stderr))
    if code:
        equal(f"{arguments}: one line of error, and no output", (done.stderr.count("\n"), done.stdout), (1, ""))
        return done.stderr
    equal(f"{arguments}: no warning", done.stderr, "")
    return done.stdout


def rows(query, folder):
    return json.loads(sql(query, folder, "--json"))["rows"]


def snapshot(rank):
    """Returns a trace of some hundred blocks of one size. Every fourth block stays live."""
    frames = [dict(name=f"layer{rank % 2}", filename="/app/model.py", line=10 + rank), dict(name="main", filename="/app/train.py", line=7)]
    trace, blocks = [], []
    for number in range(400):
        address, time_us = (1 << 40) + number * 4096, 1_700_000_000_000_000 + 10 * number
        trace.append(dict(action="alloc", addr=address, size=4096 + rank, stream=0, time_us=time_us, frames=frames))
        state = "active_allocated"
        if number % 4:
            state = "inactive"
            for action in ("free_requested", "free_completed"):
                trace.append(dict(action=action, addr=address, size=4096 + rank, stream=0, time_us=time_us + 5, frames=frames))
        blocks.append(dict(address=address, size=4096, requested_size=4096, state=state, frames=frames))
    segment = dict(device=0, address=1 << 40, total_size=400 * 4096, allocated_size=100 * 4096, active_size=100 * 4096,
        requested_size=100 * 4096, stream=0, segment_type="large", segment_pool_id=(0, 0), is_expandable=False, frames=[], blocks=blocks)
    return dict(segments=[segment], device_traces=[trace], allocator_settings={}, external_annotations=[])


def exported(folder):
    """Exports a data set of some ranks, with a job whose name must be escaped."""
    files = []
    for rank in range(RANKS):
        files.append(WORK / f"rank{rank}.pickle")
        files[-1].write_bytes(pickle.dumps(snapshot(rank)))
    subprocess.run([MEMTRACK, "export", "--parquet", folder, "--job", "a job/100%", "--events", *files], capture_output=True, check=True)
    return folder


def forms(folder):
    """Checks text, JSON and CSV; the query as an argument, from a file, from standard input, and by name."""
    query = "SELECT job, rank, peak_bytes, peak_phase FROM devices ORDER BY rank"
    answer = json.loads(sql(query, folder, "--json"))
    equal("the schema's name", answer["schema"], "memtrack/sql/1")
    equal("columns", answer["columns"], [dict(name="job", type="STRING"), dict(name="rank", type="BIGINT"),
        dict(name="peak_bytes", type="BIGINT"), dict(name="peak_phase", type="STRING")])
    expected = [dict(job="a job/100%", rank=rank, peak_bytes=101 * (4096 + rank) if rank else 101 * 4096, peak_phase=None)
        for rank in range(RANKS)]
    equal("rows", [{**row, "peak_bytes": 0} for row in answer["rows"]], [{**row, "peak_bytes": 0} for row in expected])
    check("bytes are numbers", all(isinstance(row["peak_bytes"], int) and row["peak_bytes"] > 400_000 for row in answer["rows"]), answer)
    equal("columns are in their order", list(answer["rows"][0]), ["job", "rank", "peak_bytes", "peak_phase"])
    (WORK / "query.sql").write_text("-- A comment first.\n" + query + ";\n")
    for form in [("--file", WORK / "query.sql", folder), ("-- A comment first.\n" + query, folder)]:
        equal(f"the same by {form[0]!r}", json.loads(sql(*form, "--json")), answer)
    for form in [("-", folder), ("--file", "-", folder)]:
        equal(f"the same by {form[0]!r}", json.loads(sql(*form, "--json", stdin=query)), answer)
    table = list(csv.DictReader(io.StringIO(sql(query, folder, "--csv"), newline="")))
    equal("CSV", table, [{key: "" if value is None else str(value) for key, value in row.items()} for row in answer["rows"]])
    equal("CSV without rows has its head", sql(query.replace("ORDER", "WHERE rank < 0 ORDER"), folder, "--csv"),
        "job,rank,peak_bytes,peak_phase\n")
    text = sql(query, folder).splitlines()
    equal("lines of the table", len(text), 2 + RANKS)
    check("unknown values are dashes", all(line.split()[-1] == "—" for line in text[2:]), text)
    check("numbers are aligned right", len({line.index(str(row["peak_bytes"])) for line, row in zip(text[2:], answer["rows"])}) == 1, text)
    text = sql("SELECT * FROM events ORDER BY event", folder, "-n", "3", width=60)
    check("as wide as the terminal", max(map(len, text.splitlines()[:5])) <= 60, text)
    check("omitted columns are listed", "No room for " in text and "--wide" in text, text)
    check("omitted rows are counted", "… and 3,997 more rows; -n 0 shows all" in text, text)
    check("--wide has all", "thread_id" in sql("SELECT * FROM events", folder, "-n", "1", "--wide", width=60).splitlines()[0])
    equal("-n 0 shows all", len(sql("SELECT event FROM events", folder, "-n", "0").splitlines()), 2 + RANKS * 1000)
    check("an empty result is reported", sql("SELECT 1 AS one WHERE false", folder).endswith("No rows.\n"))
    equal("columns of one name", list(rows("SELECT a.rank, b.rank FROM runs a JOIN runs b ON a.rank = b.rank LIMIT 1", folder)[0]), ["rank", "rank_2"])
    equal("values that JSON does not have are null", rows("SELECT 1e0 / 0 AS a, CAST('NaN' AS DOUBLE) AS b", folder), [dict(a=None, b=None)])
    equal("sums and large numbers", rows("SELECT sum(size_bytes) AS a, 9223372036854775807 AS b, CAST(1.5 AS DECIMAL(9, 2)) AS c FROM events WHERE rank = 0 AND action = 'alloc'",
        folder), [dict(a=400 * 4096, b=9223372036854775807, c=1.5)])
    for table in TABLES:
        found = rows(f"SELECT count(*) AS rows, count(DISTINCT rank) AS ranks FROM {table}", folder)[0]
        check(f"{table} can be queried", found["ranks"] in (0, RANKS) and (found["rows"] > 0) == (found["ranks"] > 0), found)
    names = {row["table_name"] for row in rows("SHOW TABLES", folder)}
    check("SHOW TABLES", names.issuperset(TABLES), names)
    documented = (ROOT / "docs" / "RANKS.md").read_text()
    for table in TABLES:
        for row in rows(f"DESCRIBE {table}", folder):
            check(f"{table}.{row['column_name']} is documented", f"`{row['column_name']}`" in documented)
    listed = sql("--list").splitlines()
    queries = {path.stem for path in (ROOT / "memtrack-cli" / "queries").glob("*.sql") if not path.stem.startswith("tables")}
    equal("--list", {line.split()[0] for line in listed}, queries)
    for query in sorted(queries):
        text = (ROOT / "memtrack-cli" / "queries" / f"{query}.sql").read_text()
        equal(f"--query {query}", json.loads(sql("--query", query, folder, "--json")), json.loads(sql(text, folder, "--json")))


def refusals(folder):
    """Checks that errors in the query have a position, and that queries cannot change anything."""
    before = sorted((path, path.stat().st_mtime_ns) for path in Path(folder).rglob("*"))
    for query, message in [
        ("SELECT rank,\n(peak_bytes FROM devices", "line 2, column 13 of the query: Expected: ), found: FROM"),
        ("SELECT rank\nFROM devices\nWHERE peek_bytes > 1", "line 3, column 7 of the query: column 'peek_bytes' not found; perhaps devices.peak_bytes"),
        ("SELECT peak_byte FROM devices", "peak_bytes"),
        ("SELECT * FROM device", "table 'device' not found; there are devices, timeline, "),
        ("SELECT no_such(rank) FROM devices", "no_such"),
        ("SELECT 'a' + rank FROM devices", "a"),
        ("SELECT 1 / 0", "ivide by zero"),
        ("", "the query is empty"),
        ("-- nothing\n", "the query is empty"),
        ("SELECT 1; SELECT 2", "one query at a time"),
        ("SELECT 'open", "line 1, column 8 of the query: "),
        ("CREATE TABLE a AS SELECT 1", "queries are read-only"),
        ("CREATE EXTERNAL TABLE a STORED AS CSV LOCATION '/etc/passwd'", "queries are read-only"),
        ("INSERT INTO runs SELECT * FROM runs", ""),
        ("COPY runs TO '/tmp/memtrack-copied.parquet'", "queries are read-only"),
        ("EXPLAIN ANALYZE COPY runs TO '/tmp/memtrack-copied.parquet'", ""),
        ("DROP TABLE runs", "queries are read-only"),
        ("DELETE FROM runs", ""),
        ("UPDATE runs SET pid = 1", ""),
        ("SET datafusion.execution.batch_size = 1", "queries are read-only"),
        ("SELECT * FROM '/etc/passwd'", "not found"),
        ("SELECT " + "(" * 300 + "1" + ")" * 300, ""),
        ("SELECT " + "1+" * 500 + "1", None),
        ("SELECT " + "NOT " * 500 + "true", None),
        ("SELECT '" + "a" * 300_000 + "'", None),
    ]:
        if message is None:
            done = subprocess.run([MEMTRACK, "sql", "-", folder], capture_output=True, text=True, input=query)
            check(f"{query[:30]}… succeeds or is rejected", done.returncode in (0, 2), (done.returncode, done.stderr[:500]))
            continue
        error = sql(query, folder, code=2)
        check(f"{query[:60]!r} is explained", message in error and error.startswith("memtrack: "), error)
    for arguments, message in [
        ((), "give a query"),
        (("SELECT 1",), "give the data set"),
        (("--query", "why"), "give the data set"),
        (("--query", "who", folder), "--query who: there is no such query; the ready ones are ranks, usual, "),
        (("--query", "why", "SELECT 1", folder), "two queries"),
        (("--jsn", folder), "there is no option --jsn"),
        (("SELECT 1", folder, "--json", "--csv"), None),
    ]:
        done = subprocess.run([MEMTRACK, "sql", *map(str, arguments)], capture_output=True, text=True)
        check(f"{arguments} is rejected", done.returncode == 2 and (message is None or message in done.stderr), (done.returncode, done.stderr))
    equal("the data set is unchanged", sorted((path, path.stat().st_mtime_ns) for path in Path(folder).rglob("*")), before)
    check("nothing was copied", not Path("/tmp/memtrack-copied.parquet").exists())


def damage(folder):
    """Checks that unreadable files are reported, with exit code 3."""
    count = "SELECT count(*) AS n, sum(peak_bytes) FROM devices"
    check("no such folder", "nowhere: No such file" in sql(count, WORK / "nowhere", code=3))
    check("a file", "cannot read" in sql(count, WORK / "rank0.pickle", code=3))
    (WORK / "empty").mkdir()
    check("an empty folder", "it is not a data set" in sql(count, WORK / "empty", code=3))
    job = next(Path(folder).glob("job=*"))
    check("a part of a data set", "a part of a data set" in sql(count, job, code=3))
    check("no such file of a query", "mine.sql" in sql("--file", WORK / "mine.sql", folder, code=3))
    (WORK / "latin1.sql").write_bytes(b"SELECT '\xe4'")
    check("a query that is not text", "latin1.sql" in sql("--file", WORK / "latin1.sql", folder, code=3))

    def broken(name, table, change):
        """Returns a copy of the data set in which one file is changed, and that file."""
        copy = WORK / name
        shutil.copytree(folder, copy)
        file = next(copy.glob(f"job=*/rank=2/{table}.parquet"))
        change(file)
        return copy, file

    half, file = broken("half", "devices", lambda file: file.write_bytes(file.read_bytes()[:-100]))
    error = sql(count, half, code=3)
    check("a truncated file", str(file) in error and "not a complete Parquet file" in error and "--force" in error, error)
    equal("other tables can still be queried", rows("SELECT count(*) AS n FROM runs", half), [dict(n=RANKS)])
    empty, file = broken("no bytes", "devices", lambda file: file.write_bytes(b""))
    check("a file without bytes", str(file) in sql(count, empty, code=3))
    gone, file = broken("gone", "devices", lambda file: file.unlink())
    check("a rank that lacks a file", str(file) in sql(count, gone, code=3))
    foreign, file = broken("foreign", "devices", lambda file: shutil.copy(file.with_name("frames.parquet"), file))
    check("another table's file", str(file) in (error := sql(count, foreign, code=3)) and "no table of devices" in error, error)

    def scribble(file):
        data = bytearray(file.read_bytes())
        for offset in range(100, len(data) - 3000, 7):
            data[offset] ^= 0x5A
        file.write_bytes(data)

    worn, file = broken("worn", "events", scribble)
    for form in ((), ("--json",), ("--csv",)):
        error = sql("SELECT max(address), sum(size_bytes) FROM events", worn, *form, code=3)
        check("a file with damage inside", str(file) in error and "--force" in error, error)
    left, _ = broken("left", "devices", lambda file: None)
    hidden = next(left.glob("job=*")) / ".rank=1.4711-0.memtrack.tmp"
    shutil.copytree(next(left.glob("job=*/rank=2")), hidden)
    equal("the files of a killed writer are ignored", rows("SELECT count(*) AS n FROM runs", left), [dict(n=RANKS)])
    (next(left.glob("job=*")) / "rank=x").mkdir()
    check("a rank that is not a number", "rank=x: a rank is a number" in sql(count, left, code=3))


def bounds(folder):
    """Checks that sorts beyond the bound use files, which are removed, and that other operations beyond it fail."""
    many = "(SELECT a.event AS x, b.event AS y, a.address || '-' || b.address AS z FROM (SELECT * FROM events WHERE rank = 0) a " \
        "CROSS JOIN (SELECT * FROM events WHERE rank = 1) b)"
    query = f"SELECT x, y, z FROM {many} t ORDER BY z, x, y"
    spill = WORK / "spill"
    spill.mkdir()
    environment = {**os.environ, "TMPDIR": str(spill)}
    start = time.monotonic()
    with open(WORK / "sorted.csv", "wb") as out:
        done = subprocess.Popen([MEMTRACK, "sql", query, folder, "--csv", "--memory", "48MiB", "--jobs", "2"], stdout=out,
            stderr=subprocess.PIPE, env=environment)
        _, _, used = os.wait4(done.pid, 0)
        error = done.stderr.read().decode()
    with open(WORK / "sorted.csv", "rb") as out:
        lines = sum(1 for _ in out)
    equal(f"a million rows are sorted ({error})", lines, 1_000_001)
    print(f"sorted a million rows in 48 MiB: {time.monotonic() - start:.1f} s, {used.ru_maxrss >> 10} MiB resident")
    check("in little more than the bound", used.ru_maxrss < 400 << 10, used.ru_maxrss)
    equal("its files are removed", list(spill.iterdir()), [])
    error = sql(f"SELECT count(DISTINCT z) FROM {many} t", folder, "--memory", "1MiB", code=2)
    check("too little memory is reported", "1.0 MiB of --memory" in error, error)
    head = subprocess.run(f"'{MEMTRACK}' sql '{query.replace(chr(39), chr(39) + chr(92) + chr(39) + chr(39))}' '{folder}' --csv | head -n 2",
        shell=True, capture_output=True, text=True, env=environment)
    equal("a closed pipe is not an error", (head.stdout.count("\n"), head.stderr, list(spill.iterdir())), (2, "", []))


def main():
    folder = exported(WORK / "a set#1 %20")
    forms(folder)
    refusals(folder)
    damage(folder)
    bounds(folder)


if len(sys.argv) != 2:
    sys.exit(__doc__)
MEMTRACK = str(Path(sys.argv[1]).resolve())
with tempfile.TemporaryDirectory() as work:
    WORK = Path(work).resolve()
    main()
print(f"{passed} passed, {failed} failed")
sys.exit(1 if failed or not passed else 0)
