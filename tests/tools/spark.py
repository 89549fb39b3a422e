#!/usr/bin/env python3
"""Runs memtrack-cli/spark on a cluster on this machine: a master and two workers, in separate processes as on many machines.
Exports 64 ranks while a worker is killed whose memtrack is writing; then again while a worker is killed whose memtrack
survives and ends later. Both times the data set must be that of an undisturbed export, file for file and byte for byte, and the
queries in Spark SQL must have the results of `memtrack ranks`.

Usage: tests/tools/spark.sh MEMTRACK FOLDER
"""

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from dataset_checks import ROOT, TABLES, Checks, write_ranks

JOBS = ROOT / "memtrack-cli" / "spark"
RANKS, STEPS, ODD = 64, 30, (9, 40)
PATIENCE_S = 400
# The ranks whose writers are halted, the first time and the second.
VICTIMS = (17, 41)


def halting(arguments):
    """Runs memtrack and halts it while it writes the rank of a victim: MEMTRACK FOLDER ARGUMENTS…. The folder FOLDER/VICTIM
    selects the rank, and is removed, so that the next export of that rank is not halted. FOLDER/halted then has the process."""
    memtrack, folder, *arguments = arguments
    victim = Path(folder) / Path(arguments[-1]).stem
    try:
        victim.rmdir()
    except FileNotFoundError:
        os.execv(memtrack, [memtrack, *arguments])
    job = Path(arguments[arguments.index("--parquet") + 1]) / "job=run"
    rank = victim.name.removeprefix("rank")
    hidden = f".rank={rank}."
    while True:
        # In a new session: the kernel sends SIGHUP to stopped processes if their parent ends in the same session.
        child = subprocess.Popen([memtrack, *arguments], stdout=subprocess.DEVNULL, start_new_session=True)
        while child.poll() is None:
            writing = [name for name in (os.listdir(job) if job.is_dir() else []) if name.startswith(f"{hidden}{child.pid}-")]
            if not writing:
                continue
            os.kill(child.pid, signal.SIGSTOP)
            if state(child.pid) == "T" and is_unfinished(job / writing[0]):
                halted = Path(folder) / "halted"
                halted.with_suffix(".tmp").write_text(json.dumps(dict(memtrack=child.pid, folder=str(job / writing[0]))))
                halted.with_suffix(".tmp").rename(halted)
                child.wait()
                sys.exit(1)
            os.kill(child.pid, signal.SIGCONT)


def is_unfinished(folder):
    """Returns whether a writer's folder has files, all of which are incomplete."""
    names = os.listdir(folder)
    return bool(names) and all(name.endswith(".parquet.tmp") for name in names)


def stat(pid):
    """Returns the fields of /proc/PID/stat after the name; None if the process has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None


def state(pid):
    """Returns the state of a process, after waiting for it to stop."""
    for _ in range(1000):
        now = stat(pid)
        if now is None or now[0] in "TZ":
            break
        time.sleep(0.001)
    return None if now is None else now[0]


def ancestors(pid):
    found = []
    while (now := stat(pid)) is not None and pid > 1:
        found.append(pid)
        pid = int(now[1])
    return found


def descendants(pid):
    """Returns a process and all its descendants."""
    children = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (now := stat(int(entry.name))) is not None:
            children.setdefault(int(now[1]), []).append(int(entry.name))
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found


def wait_for(what, ready):
    """Waits until `ready` returns something, and returns that."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        if answer := ready():
            return answer
        time.sleep(0.05)
    sys.exit(f"waited {PATIENCE_S} s for {what}")


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Cluster:
    """A master, and workers with one core each."""

    def __init__(self, work):
        import pyspark

        self.work, self.home = work, Path(pyspark.__file__).parent
        self.environment = dict(os.environ, SPARK_HOME=str(self.home), SPARK_LOCAL_IP="127.0.0.1", SPARK_DAEMON_MEMORY="512m",
            SPARK_MASTER_OPTS="-Dspark.master.rest.enabled=false", PYSPARK_PYTHON=sys.executable, PYSPARK_DRIVER_PYTHON=sys.executable)
        os.environ.update(self.environment)
        port, self.page = free_port(), free_port()
        self.url, self.started = f"spark://127.0.0.1:{port}", []
        self.start("master", "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", port, "--webui-port", self.page)
        self.workers = []

    def start(self, name, *command):
        log = open(self.work / f"{name}.log", "w")
        command = [self.home / "bin" / "spark-class", *command]
        self.started.append(subprocess.Popen(list(map(str, command)), env=self.environment, stdout=log, stderr=log, cwd=self.work))
        return self.started[-1].pid

    def alive(self):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.page}/json/", timeout=10) as answer:
                return json.load(answer)["aliveworkers"]
        except (OSError, ValueError):
            return None

    def until_workers(self, count):
        """Starts workers until there are `count`."""
        wait_for("the master", lambda: self.alive() is not None)
        wait_for("the end of the worker that was killed", lambda: self.alive() == len(self.workers))
        while len(self.workers) < count:
            number = len(self.started)
            self.workers.append(self.start(f"worker{number}", "org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--cores", 1,
                "--memory", "1g", "--webui-port", 0, "--work-dir", self.work / f"worker{number}", self.url))
        wait_for("workers", lambda: self.alive() == count)

    def kill_worker_of(self, pid, spared=()):
        """Kills the worker that started a process, with all its descendants."""
        worker = next(one for one in ancestors(pid) if one in self.workers)
        self.workers.remove(worker)
        for one in descendants(worker):
            if one not in spared:
                os.kill(one, signal.SIGKILL)

    def submit(self, program, *arguments):
        """Starts a program on the cluster."""
        settings = dict(zip(["spark.driver.memory", "spark.executor.memory", "spark.sql.shuffle.partitions", "spark.ui.enabled",
            "spark.ui.showConsoleProgress", "spark.log.level"], ["1g", "1g", "4", "false", "false", "ERROR"]))
        command = [self.home / "bin" / "spark-submit", "--master", self.url]
        for key, value in settings.items():
            command += ["--conf", f"{key}={value}"]
        command += [JOBS / program, *arguments]
        with open(self.work / "submitted.log", "w") as log:
            return subprocess.Popen(list(map(str, command)), env=self.environment, cwd=self.work, text=True, stdout=subprocess.PIPE, stderr=log)

    def stop(self):
        for one in self.started:
            for pid in descendants(one.pid):
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            one.wait()


def report(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


class Test:
    def __init__(self, work, memtrack):
        self.work, self.memtrack = work, memtrack
        self.checks = Checks(memtrack)
        self.cluster = Cluster(work)
        self.files = write_ranks(work / "run", RANKS, STEPS, 1, ODD)
        self.plain, self.set, self.report = work / "plain", work / "set", work / "report"
        # The command that the workers run: memtrack, which is halted if the victim's folder exists.
        self.halts = work / "halts"
        self.halts.mkdir()
        self.command = work / "memtrack-halting"
        self.command.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{Path(__file__).resolve()}" --halting "{memtrack}" "{self.halts}" "$@"\n')
        self.command.chmod(0o755)

    def export(self, *arguments):
        return self.cluster.submit("export_ranks.py", "--output", self.set, "--report", self.report, *arguments)

    def ended(self, job, code):
        output, _ = job.communicate(timeout=PATIENCE_S)
        self.checks.equal("exit code of the job", job.returncode, code)
        if job.returncode != code:
            print(output, (self.work / "submitted.log").read_text()[-3000:])
        return output

    def disturbed(self, victim, survives):
        """Exports all ranks, and kills the worker that writes the victim's rank."""
        checks, halted = self.checks, self.halts / "halted"
        halted.unlink(missing_ok=True)
        (self.halts / f"rank{victim}").mkdir()
        job = self.export("--memtrack", self.command, self.work / "run" / "rank*.pickle", "--", "--events")
        wait_for("a writer", lambda: halted.exists() or job.poll() is not None)
        writer = json.loads(halted.read_text())
        checks.equal("the writer is halted", state(writer["memtrack"]), "T")
        left = Path(writer["folder"])
        checks.check("it was writing", is_unfinished(left), os.listdir(left))
        self.cluster.kill_worker_of(writer["memtrack"], [writer["memtrack"]] if survives else [])
        output = self.ended(job, 0)
        checks.check("the remaining folder is reported", str(left) in output, output)
        answers = {answer["rank"]: answer for answer in report(self.report)}
        checks.equal("ranks of the report", sorted(answers), list(range(RANKS)))
        checks.equal("attempts at the victim", answers[victim]["attempt"], 1)
        checks.check("the writer's folder still exists", left.is_dir(), left)
        if survives:
            os.kill(writer["memtrack"], signal.SIGCONT)
            wait_for("the end of the surviving writer", lambda: has_ended(writer["memtrack"]))
            checks.check("it has moved its rank into place", not left.exists(), left)
        return answers

    def compare(self):
        """Checks that the data set equals an undisturbed export, to the byte, except for the folders of killed writers."""
        def files(folder):
            return {str(file.relative_to(folder)): file.read_bytes() for file in folder.glob("job=*/rank=*/*")}

        found, plain = files(self.set), files(self.plain)
        self.checks.equal("files", sorted(found), sorted(plain))
        self.checks.equal("files that differ", [name for name in plain if found.get(name) != plain[name]], [])
        self.checks.equal("number of files", len(found), RANKS * len(TABLES))

    def failures(self):
        """Checks that files that cannot be exported are reported, and the others are exported."""
        folder = self.work / "odd run"
        files = write_ranks(folder, 3, 3, 1, ())
        files[1].write_bytes(b"\x80\x04no pickle")
        files[0].rename(folder / "first.pickle")
        (folder / "more").mkdir()
        other = folder / "more" / "rank2.pickle"
        other.write_bytes(files[2].read_bytes())
        names = self.work / "names.txt"
        names.write_text(f"{folder}/*.pickle\n\n{other}\n")
        output = self.work / "a set"
        job = self.cluster.submit("export_ranks.py", "--memtrack", self.memtrack, "--ship", "--output", output.as_uri(), "--report",
            self.report, "--job", "a job", "--files-from", names)
        output_text = self.ended(job, 3)
        answers = {Path(answer["file"]): answer for answer in report(self.report)}
        for file, why in [(files[1], "rank1.pickle"), (folder / "first.pickle", "cannot determine the rank of")]:
            self.checks.check(f"{file.name} is reported", why in (answers[file]["error"] or "") and str(file) in output_text, output_text)
        errors = [answers[file]["error"] for file in (files[2], other)]
        self.checks.check("one of two files of a rank fails", errors.count(None) == 1 and "is from" in str(errors), errors)
        there = sorted(str(path.relative_to(output)) for path in output.glob("*/*"))
        self.checks.equal("exported ranks", there, ["job=a%20job/rank=2"])
        for wrong, why in [
            (["--output", "s3://bucket/set", files[2]], "not a folder"), (["--output", output, folder], "is a folder"),
            (["--output", output, files[2], other], "--job"), (["--output", output, folder / "none*"], "matches no file"),
        ]:
            job = self.cluster.submit("export_ranks.py", *wrong)
            self.checks.check(f"{wrong} is rejected", why in self.ended(job, 2), why)

    def queries(self, spark):
        """Runs the queries, unchanged, in Spark SQL."""
        spec = importlib.util.spec_from_file_location("query", JOBS / "query.py")
        query = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(query)
        query.make_views(spark, str(self.set))
        checks = self.checks

        def rows(text):
            return [row.asDict() for row in spark.sql(text).collect()]

        counts = spark.sql(" UNION ALL ".join(f"SELECT '{table}' AS name, count(DISTINCT rank) AS ranks FROM {table}" for table in TABLES))
        found = {row.name: row.ranks for row in counts.collect()}
        checks.equal("ranks that Spark sees", {name for name, ranks in found.items() if ranks == RANKS}, set(TABLES) - {"out_of_memory"})
        checks.consistent("Spark", lambda text: spark.sql(text).first()[0])
        ranks_report = checks.same_answers("Spark", rows, self.files)
        odd = {rank["rank"] for one in ranks_report["memories"] for rank in one["outliers"]}
        checks.equal("outliers", odd, set(ODD))
        checks.check("lifetimes.sql has rows", rows((query.QUERIES / "lifetimes.sql").read_text()))
        # The views of tables.spark.sql have the same columns.
        there = Path.cwd()
        expected = {table: sorted(spark.table(table).columns) for table in TABLES}
        for statement in (query.QUERIES / "tables.spark.sql").read_text().split(";"):
            if statement.strip():
                spark.sql(statement.replace("path 'job", f"path '{self.set}/job").replace("basePath '.'", f"basePath '{self.set}'"))
        checks.equal("columns of tables.spark.sql", {table: sorted(spark.table(table).columns) for table in TABLES}, expected)
        os.chdir(there)
        return ranks_report

    def query_script(self, ranks_report):
        """Runs query.py as a user does."""
        answer = self.ended(self.cluster.submit("query.py", "outliers", self.set, "--json"), 0)
        found = [json.loads(line) for line in answer.splitlines() if line.startswith("{")]
        self.checks.equal("outliers by query.py", len(found), sum(len(one["outliers"]) for one in ranks_report["memories"]))
        answer = self.ended(self.cluster.submit("query.py", "SELECT job, count(*) AS ranks FROM runs GROUP BY job", self.set), 0)
        self.checks.check("query.py prints a table", f"|run|{RANKS}   |" in answer, answer)
        self.ended(self.cluster.submit("query.py", "nothing", self.set), 2)
        self.ended(self.cluster.submit("query.py", "SELECT nothing FROM runs", self.set), 2)
        self.ended(self.cluster.submit("query.py", "ranks", self.work), 3)

    def run(self):
        from pyspark.sql import SparkSession

        self.checks.memtrack("export", "--parquet", self.plain, "--events", *self.files)
        self.cluster.until_workers(2)
        answers = self.disturbed(VICTIMS[0], survives=False)
        # The victim's writer may have been too fast to be halted, and was then run again.
        replaced = [one for one in answers.values() if one["replaced"] and one["rank"] != VICTIMS[0]]
        self.checks.equal("ranks that were replaced", replaced, [])
        self.cluster.until_workers(2)
        self.failures()
        start = time.time()
        answers = self.disturbed(VICTIMS[1], survives=True)
        self.checks.equal("ranks that were replaced", sum(answer["replaced"] for answer in answers.values()), RANKS)
        self.cluster.until_workers(2)
        self.checks.check("every rank is new", all(path.stat().st_mtime >= start for path in self.set.glob("job=*/rank=*/runs.parquet")))
        self.compare()
        spark = (SparkSession.builder.master(self.cluster.url).config("spark.executor.memory", "1g").config("spark.driver.memory", "1g")
            .config("spark.sql.shuffle.partitions", "4").config("spark.ui.enabled", "false").config("spark.log.level", "ERROR")
            .config("spark.ui.showConsoleProgress", "false").getOrCreate())
        ranks_report = self.queries(spark)
        spark.stop()
        self.query_script(ranks_report)


def has_ended(pid):
    """Returns whether a process has ended."""
    now = stat(pid)
    return now is None or now[0] == "Z"


def main(memtrack):
    with tempfile.TemporaryDirectory(prefix="memtrack-spark-") as work:
        test = Test(Path(work).resolve(), memtrack)
        try:
            test.run()
        finally:
            test.cluster.stop()
        return test.checks.closing_line()


if __name__ == "__main__":
    if sys.argv[1:2] == ["--halting"]:
        halting(sys.argv[2:])
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
