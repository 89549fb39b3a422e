#!/usr/bin/env python3
"""Exports the ranks of a job with Spark: each task runs `memtrack export --parquet` on one snapshot or recording.

Usage: spark-submit [--master URL …] export_ranks.py --output DIR [options] FILES… [-- OPTIONS OF memtrack export]

  spark-submit --master spark://head:7077 export_ranks.py --memtrack /opt/memtrack --output /shared/memory 'run/rank*.pickle'
  … --files-from list.txt --job 17 -- --events --bins 200        one path per line; options after -- are passed to memtrack

Files, DIR and, unless --ship is given, memtrack have the same paths on the driver and on every worker. A rank's folder appears
atomically, so tasks that are retried, that run twice, or that outlive their executor do no harm. A file that cannot be exported is
reported at the end, and the others are exported. The repository's docs/RANKS.md has the details.
Exit codes: 0 all were exported, 2 wrong usage, 3 some were not exported; another run with the same files exports these too.
"""

import argparse
import glob
import json
import os
import re
import resource
import socket
import subprocess
import sys
import time
from urllib.parse import unquote, urlparse

from pyspark import SparkFiles, TaskContext
from pyspark.sql import SparkSession

# The maximum number of times that a file is exported if the driver does not see the rank that a task has written.
ROUNDS = 2


class Usage(Exception):
    """An error in the arguments."""


def parse(arguments):
    """Returns this script's arguments, and those for memtrack."""
    own, more = arguments, []
    if "--" in arguments:
        at = arguments.index("--")
        own, more = arguments[:at], arguments[at + 1:]
    parser = argparse.ArgumentParser(prog="export_ranks.py", usage="%(prog)s --output DIR [options] FILES… [-- OPTIONS OF memtrack export]",
        description="Exports ranks with Spark: each task runs `memtrack export --parquet` on one file.")
    parser.add_argument("files", metavar="FILES", nargs="*", help="snapshots and recordings, one of each rank: paths and quoted patterns")
    parser.add_argument("--files-from", metavar="LIST", help="a file with a path or pattern a line")
    parser.add_argument("--output", metavar="DIR", required=True, help="the data set: a folder that the driver and all workers share")
    parser.add_argument("--memtrack", metavar="PATH", default="memtrack", help="the command, on the workers [default: %(default)s]")
    parser.add_argument("--ship", action="store_true", help="copy the command from here to the workers")
    parser.add_argument("--job", metavar="NAME", help="the job that all files are of [default: as the files or their paths say, else "
        "the name of their folder, if it is one]")
    # The report goes to a file, because spark-submit merges standard output and standard error.
    parser.add_argument("--report", metavar="FILE", help="write what came of each file: a JSON object a line")
    return parser.parse_args(own), more


def folder_of(output):
    """Returns the output folder; URLs of other file systems are rejected."""
    url = urlparse(output)
    if url.scheme == "file" and url.netloc in ("", "localhost"):
        output = unquote(url.path)
    elif "://" in output:
        raise Usage(f"{output} is not a folder: memtrack writes to file systems. Export to a folder that all workers share, then copy the "
            "folders job=… to the object store")
    if os.path.exists(output) and not os.path.isdir(output):
        raise Usage(f"{output} is not a folder: choose another name")
    return os.path.abspath(output)


def expand(given, files_from):
    """Returns the selected files without duplicates, under the given names: the name of a link may contain the rank."""
    given = list(given)
    if files_from is not None:
        try:
            with open(files_from, encoding="utf-8") as lines:
                given += [line.rstrip("\r\n") for line in lines if line.strip()]
        except OSError as error:
            raise Usage(f"cannot read {files_from}: {error.strerror}") from error
    files = {}
    for one in given:
        found = [one] if os.path.lexists(one) or not glob.has_magic(one) else sorted(glob.glob(one))
        if not found:
            raise Usage(f"{one} matches no file")
        for file in found:
            if os.path.isdir(file):
                raise Usage(f"{file} is a folder: give a pattern of the files in it, as '{file}/rank*.pickle'")
            files[os.path.abspath(file)] = None
    if not files:
        raise Usage("no files are given")
    return list(files)


def check_job(files, job):
    """Requires --job for files from several folders: by default each folder is a job, but usually each is one machine's."""
    folders = {os.path.dirname(os.path.realpath(file)) for file in files}
    if job is None and len(folders) > 1 and not all("/job=" in file for file in files):
        raise Usage(f"the files are in {len(folders)} folders: give their job with --job")


def attempts(context):
    """Returns the number of times that Spark tries a task before it aborts the job."""
    local = re.fullmatch(r"local(\[[^,]*(,\s*(\d+))?\])?", context.master)
    if local:
        return int(local.group(3) or 1)
    return int(context.getConf().get("spark.task.maxFailures", "4"))


def export_one(file, command, shipped, last_attempt):
    """Exports a file, on a worker; returns the result. Raises an error if the task should be retried."""
    start, attempt = time.monotonic(), TaskContext.get().attemptNumber()
    answer = dict(file=file, host=socket.gethostname(), attempt=attempt, error=None)

    def used():
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return children.ru_utime + children.ru_stime

    before = used()
    program = SparkFiles.get(command[0]) if shipped else command[0]
    try:
        done = subprocess.run([program, *command[1:], file], stdin=subprocess.DEVNULL, capture_output=True)
    except OSError as error:
        answer["error"] = f"cannot run {program} on {answer['host']}: {error.strerror}"
        return answer
    messages = [line.removeprefix("memtrack: ") for line in done.stderr.decode(errors="replace").splitlines() if line.strip()]
    answer.update(seconds=time.monotonic() - start, cpu_seconds=used() - before, exit_code=done.returncode)
    if done.returncode == 0:
        rank = json.loads(done.stdout)["ranks"][0]
        answer.update({key: rank[key] for key in ("job", "rank", "folder", "replaced", "size_bytes")})
        answer.update(file_bytes=os.stat(file).st_size, warnings=messages)
        return answer
    why = "; ".join(messages) or "it printed no message"
    if done.returncode not in (2, 3):
        how = f"signal {-done.returncode}" if done.returncode < 0 else f"exit code {done.returncode}"
        why = f"memtrack ended with {how} on {answer['host']}: {why}"
        # The kernel or a user killed memtrack. The last attempt must not raise an error: that would abort the whole job.
        if attempt + 1 < last_attempt:
            raise RuntimeError(f"{file}: {why}")
    answer["error"] = why
    return answer


def export(context, files, command, shipped):
    """Exports files, one task per file."""
    last_attempt = attempts(context)

    def task(some):
        return [export_one(file, command, shipped, last_attempt) for file in some]

    return context.parallelize(files, len(files)).mapPartitions(task).collect()


def is_there(answer):
    return os.path.isfile(os.path.join(answer["folder"], "runs.parquet"))


def export_until_seen(context, files, command, shipped):
    """Exports files, and exports those again whose ranks are missing although a task has written them: on file systems that
    cannot exchange folders atomically, a copy of a task that Spark kills may remove a rank that another copy has written."""
    answers = {}
    for _ in range(ROUNDS):
        for answer in export(context, files, command, shipped):
            answers[answer["file"]] = answer
        written = [answer for answer in answers.values() if answer["error"] is None]
        files = [answer["file"] for answer in written if not is_there(answer)]
        if not files:
            break
    for file in files:
        answer = answers[file]
        answer["error"] = f"{answer['folder']} was written on {answer['host']} and is not seen here: do driver and workers share it?"
    return list(answers.values())


def count_events(spark, output, answers):
    """Adds the number of events of each rank, as Spark reads it from the data set."""
    runs = [os.path.join(answer["folder"], "runs.parquet") for answer in answers]
    if not runs:
        return
    read = spark.read.option("basePath", output).schema("events BIGINT, job STRING, rank BIGINT")
    events = {(row.job, row.rank): row.events for row in read.parquet(*runs).collect()}
    for answer in answers:
        answer["events"] = events[answer["job"], answer["rank"]]


def human_bytes(count):
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            break
        count, unit = count / 1024, "TiB"
    return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"


def left_over(output, answers):
    """Returns the temporary folders that killed writers have left in these jobs."""
    jobs = {os.path.dirname(answer["folder"]) for answer in answers}
    return [os.path.join(job, name) for job in sorted(jobs) for name in sorted(os.listdir(job)) if name.startswith(".rank=")]


def report(line):
    print(f"export_ranks.py: {line}", file=sys.stderr)


def main():
    arguments, more = parse(sys.argv[1:])
    try:
        output = folder_of(arguments.output)
        files = expand(arguments.files, arguments.files_from)
        check_job(files, arguments.job)
        if arguments.ship and not os.path.isfile(arguments.memtrack):
            raise Usage(f"{arguments.memtrack} is not a file: --ship needs the command's path")
    except Usage as error:
        report(error)
        return 2
    spark = SparkSession.builder.appName(f"memtrack export to {output}").getOrCreate()
    context = spark.sparkContext
    memtrack = arguments.memtrack
    if arguments.ship:
        context.addFile(memtrack)
        memtrack = os.path.basename(memtrack)
    command = [memtrack, "export", "--parquet", output, "--json", "--require-rank"]
    command += ["--job", arguments.job] if arguments.job is not None else []
    start = time.monotonic()
    answers = export_until_seen(context, files, [*command, *more], arguments.ship)
    seconds = time.monotonic() - start
    exported = sorted((answer for answer in answers if answer["error"] is None), key=lambda one: (one["job"], one["rank"]))
    failed = [answer for answer in answers if answer["error"] is not None]
    count_events(spark, output, exported)
    for one in exported:
        print(f"job {one['job']} rank {one['rank']}: {one['events']:,} events, {human_bytes(one['file_bytes'])} to "
            f"{human_bytes(one['size_bytes'])} in {one['seconds']:.2f} s on {one['host']}, {one['events'] / one['seconds']:,.0f} events/s")
        for warning in one["warnings"]:
            report(f"{one['file']}: {warning}")
    for one in failed:
        report(f"{one['file']}: {one['error']}")
    for folder in left_over(output, exported):
        report(f"{folder} is a killed writer's, which no reader looks into; an export of that rank removes it once it is a day old")
    jobs = sorted({one["job"] for one in exported})
    if len(jobs) > 1:
        report(f"careful: the files are of {len(jobs)} jobs: {', '.join(jobs)}")
    size, read = sum(one["size_bytes"] for one in exported), sum(one["file_bytes"] for one in exported)
    report(f"{len(exported)} ranks in {output}, {len(failed)} files failed; {human_bytes(read)} to {human_bytes(size)}, {seconds:.1f} s, "
        f"{sum(one['cpu_seconds'] for one in exported):.1f} s of processor time")
    if arguments.report is not None:
        with open(arguments.report, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(one) + "\n" for one in [*exported, *failed])
    spark.stop()
    return 3 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
