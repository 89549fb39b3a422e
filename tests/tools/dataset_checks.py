"""Checks of a data set of ranks in any engine: its tables are consistent, and the results of memtrack-cli/queries are those of
`memtrack ranks --json`. Used by dataset.py (DuckDB) and spark.py (Spark)."""

import json
import pickle
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
QUERIES = ROOT / "memtrack-cli" / "queries"
TABLES = ["runs", "devices", "timeline", "groups", "steps", "out_of_memory", "live", "stacks", "frames", "events"]
MIB = 1 << 20


class Checks:
    """A counter of checks, which prints those that fail."""

    def __init__(self, memtrack):
        self.memtrack_path = memtrack
        self.passed, self.failed = 0, 0

    def check(self, what, is_so, why=""):
        if is_so:
            self.passed += 1
        else:
            self.failed += 1
            print(f"FAILED: {what}\n  {str(why)[:1500]}")

    def equal(self, what, found, expected):
        self.check(what, found == expected, f"found    {found}\n  expected {expected}")

    def memtrack(self, *arguments, code=0):
        done = subprocess.run([self.memtrack_path, *map(str, arguments)], capture_output=True, text=True)
        self.check(f"memtrack {arguments[0]} ends with {code}", done.returncode == code, (arguments, done.returncode, done.stderr))
        return done

    def closing_line(self):
        """Prints the closing line; returns the exit code."""
        print(f"{self.passed} passed, {self.failed} failed")
        return 1 if self.failed or not self.passed else 0

    def consistent(self, name, value):
        """Checks that the tables of a data set are consistent. `value` returns the only value of a query's result."""
        self.equal(f"{name}: frames of stacks exist", value(
            "SELECT count(*) FROM stacks s ANTI JOIN frames f USING (job, rank, frame)"), 0)
        self.equal(f"{name}: stacks of live blocks exist", value(
            "SELECT count(*) FROM (SELECT * FROM live WHERE stack <> 0) l ANTI JOIN stacks s USING (job, rank, stack)"), 0)
        self.equal(f"{name}: live blocks add up to the peak", value("""
            SELECT count(*) FROM devices d WHERE peak_bytes <> coalesce((SELECT sum(bytes) FROM live l WHERE l.job = d.job
            AND l.rank = d.rank AND l.device = d.device AND moment = 'peak'), 0)"""), 0)
        self.equal(f"{name}: the maximum of the timeline is the peak", value("""
            SELECT count(*) FROM devices d WHERE peak_bytes <> coalesce((SELECT max(live_bytes) FROM timeline l
            WHERE l.job = d.job AND l.rank = d.rank AND l.device = d.device), 0)"""), 0)

    def same_answers(self, name, rows, files):
        """Checks that the queries return the results of `memtrack ranks --json`, and returns that report. `rows` returns the rows
        of a query's text as dictionaries."""
        report = json.loads(self.memtrack("ranks", "--json", *files).stdout)

        def answer(query):
            return rows((QUERIES / f"{query}.sql").read_text())

        def memory(one):
            return one["device"]["name"]

        expected = [
            (rank["rank"], device["device"]["name"], device["peak"]["requested_bytes"], device["peak"]["seconds"],
             device["peak"]["phase"], device["peak"]["operator"], device["reserved"] and device["reserved"]["reserved_bytes"],
             device["waste_bytes"], device["end_requested_bytes"], device["out_of_memory_count"])
            for rank in report["ranks"] for device in rank["devices"]
        ]
        found = [tuple(row.values())[1:] for row in answer("ranks")]
        self.equal(f"{name}: ranks.sql", sorted(found, key=str), sorted(expected, key=str))

        expected = [
            (memory(one), measure["measure"], measure["ranks"], measure["median_bytes"], measure["deviation_bytes"],
             measure["tolerance_bytes"])
            for one in report["memories"] for measure in one["measures"]
        ]
        found = [tuple(row.values())[1:] for row in answer("usual")]
        self.equal(f"{name}: usual.sql", sorted(found), sorted(expected))

        expected, reasons = [], []
        for one in report["memories"]:
            for odd in one["outliers"]:
                expected.append((memory(one), odd["rank"], odd["measure"], odd["own_bytes"], odd["median_bytes"], odd["change_bytes"]))
                for why in odd["why"]:
                    reasons.append((memory(one), odd["rank"], odd["measure"], why["key"], why["own_bytes"], why["own_count"],
                        why["median_bytes"], why["change_bytes"], why["other_ranks"]))
        found = [tuple(row.values())[1:] for row in answer("outliers")]
        self.equal(f"{name}: outliers.sql", sorted(found), sorted(expected))
        found = [tuple(value for key, value in row.items() if key not in ("job", "name")) for row in answer("why")]
        self.equal(f"{name}: why.sql", sorted(found), sorted(reasons))

        expected = [
            (memory(one), step["number"], step["ranks"], step["median_bytes"], step["most_bytes"],
             None if step["highest"] is None else report["ranks"][step["highest"]]["rank"], step["end_median_bytes"], step["end_most_bytes"])
            for one in report["memories"] for step in (one["skew"] or {"steps": []})["steps"]
        ]
        found = [tuple(row.values())[1:-1] for row in answer("skew")]
        self.equal(f"{name}: skew.sql", sorted(found, key=str), sorted(expected, key=str))

        for query in ("timeline", "stacks", "lifetimes"):
            found = answer(query)
            self.check(f"{name}: {query}.sql has rows", query == "lifetimes" or found, found)
        return report


def write_ranks(folder, ranks, steps, devices, odd):
    """Writes snapshots of the ranks of a training job; those in `odd` are outliers. Returns their paths."""
    folder.mkdir()
    files = []
    for rank in range(ranks):
        files.append(folder / f"rank{rank}.pickle")
        with open(files[-1], "wb") as file:
            pickle.dump(snapshot(rank, steps, devices, rank in odd), file)
    return files


def snapshot(rank, steps, devices, outlier):
    """Returns a snapshot of a training run on `devices`: each step allocates and frees; an outlier also keeps a block of every step."""
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
        allocated = sum(size for _, size in live)
        segments.append(dict(device=device, address=base, total_size=reserved, allocated_size=allocated, active_size=allocated,
            requested_size=allocated, stream=0, segment_type="large", segment_pool_id=(0, 0), is_expandable=False, frames=[], blocks=blocks))
        traces.append(trace)
    return dict(segments=segments, device_traces=traces, allocator_settings={}, external_annotations=annotations)
