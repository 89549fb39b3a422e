#!/usr/bin/env python3
"""programs.py MEMTRACK [--only NAME ...] [--quick] [--list] [--install]: programs of others do not notice memtrack.

Each program runs twice alone, then under `memtrack run` and under `memtrack run --host`. Exit code, standard output and standard
error, without the lines of the command itself, must be the same, and no process may be left. What differs between the two runs
alone is not compared. A recorded run that differs is repeated, as is the one alone: if it is the same then, the result is
"unsteady", which is shown, but is not a failure. A run that exceeds its limit of time is killed and is a failure.

programs/NAME/run.sh is the program; the tests of CPython (cpython-*) are those of the installed Pythons with the package `test`.
Programs that are not installed are skipped. The table's times are the faster of the two runs alone, and one run of each other kind. --install installs the Debian packages of the chosen programs first, and needs root.
--quick runs those that are on most machines and take a few seconds. Linux only, standard library only."""
import argparse
import ctypes
import dataclasses
import difflib
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree

here = os.path.dirname(os.path.abspath(__file__))
NOBODY = 65534


@dataclasses.dataclass
class Program:
    name: str
    what: str                # the table's text for what was run
    needs: tuple             # commands that must be installed, and folders
    version: tuple           # the command that prints the version in its first line with a number
    packages: tuple = ()     # Debian packages that contain these commands
    quick: bool = False
    seconds: int = 120       # a longer run counts as a hang
    as_nobody: bool = False  # it refuses to run as root
    environment: tuple = ()
    modules: tuple = ()      # the tests of CPython; instead of run.sh
    python: str = ""


POSTGRES = (sorted(glob.glob("/usr/lib/postgresql/*/bin")) or ["/usr/lib/postgresql/bin"])[-1]
PROGRAMS = [
    Program("pipeline", "awk, sort, xz, tar, xargs, signals, exec", ("awk", "xz", "gzip", "tar", "split"), ("bash", "--version"), ("xz-utils", "gawk"), quick=True),
    Program("git", "240 commits, merge, gc, fsck, clone, rebase", ("git",), ("git", "version"), ("git",), quick=True),
    Program("gcc", "make -j2 of 13 files, -flto, an error", ("gcc", "g++", "make"), ("gcc", "--version"), ("gcc", "g++", "make"), quick=True),
    Program("perl", "threads, 30 forks, signals, pipes", ("perl",), ("perl", "--version"), ("perl",), quick=True),
    Program("node", "worker_threads, child processes, cluster, zlib", ("node",), ("node", "--version"), ("nodejs",), quick=True),
    Program("rust", "cargo build and test, threads, a panic", ("cargo", "rustc"), ("rustc", "--version"), ("cargo", "rustc"), quick=True),
    Program("sqlite", "two writers, a large sort", ("sqlite3",), ("sqlite3", "--version"), ("sqlite3",), quick=True),
    Program("redis", "400 commands, benchmark, bgsave, restart", ("redis-server", "redis-cli", "redis-benchmark"), ("redis-server", "--version"), ("redis-server",)),
    Program("postgres", "initdb, pgbench, parallel query, crash, stop", (POSTGRES + "/postgres", POSTGRES + "/pgbench"), (POSTGRES + "/postgres", "--version"), ("postgresql",), as_nobody=True),
    Program("nginx", "requests, reload, a killed worker, quit", ("nginx", "curl", "pkill"), ("nginx", "-v"), ("nginx-light", "curl", "procps")),
    Program("java", "javac, threads, ProcessBuilder, out of memory", ("java", "javac"), ("java", "-version"), ("default-jdk-headless",)),
    Program("go", "go build with cgo, 64 goroutines, exec", ("go", "gcc"), ("go", "version"), ("golang-go", "gcc"), seconds=400),
    Program("tmux", "daemon, shells in pseudo-terminals", ("tmux",), ("tmux", "-V"), ("tmux",)),
    Program("sandboxes", "file, man, bwrap, unshare, script", ("file", "man", "bwrap", "unshare", "script"), ("bwrap", "--version"), ("file", "man-db", "bubblewrap", "bsdutils"), as_nobody=True),
    Program("sshd", "login, sftp, terminal, a refused key", ("sshd", "ssh", "sftp", "/run/sshd"), ("ssh", "-V"), ("openssh-server", "openssh-client")),
    Program("ruby", "threads, fibers, forks, pipes, GC.compact", ("ruby",), ("ruby", "--version"), ("ruby",)),
    Program("php", "generators, proc_open, memory limit", ("php",), ("php", "--version"), ("php-cli",)),
    Program("debuggers", "gdb and strace of a program with threads", ("gdb", "strace", "gcc"), ("gdb", "--version"), ("gdb", "strace", "gcc")),
    Program("valgrind", "memcheck of a program with errors", ("valgrind", "gcc"), ("valgrind", "--version"), ("valgrind", "gcc")),
    Program("chromium", "--headless --dump-dom, worker, WebAssembly", ("chromium",), ("chromium", "--version"), ("chromium",), environment=(("CHROMIUM_OPTIONS", "--no-sandbox"),)),
    Program("chromium-sandbox", "the same in its sandbox", ("chromium",), ("chromium", "--version"), ("chromium",), as_nobody=True),
]
# CPython's tests, by topic.
MODULES = {
    "threads": ("test_thread", "test_threading", "test_threading_local", "test_threadedtempfile", "test_threadsignals", "test_queue"),
    "subprocess": ("test_subprocess", "test_popen", "test_fork1", "test_wait3", "test_wait4"),
    "multiprocessing": ("test_multiprocessing_main_handling", "test_multiprocessing_fork"),
    "spawn": ("test_multiprocessing_spawn", "test_multiprocessing_forkserver"),
    "futures": ("test_concurrent_futures",),
    "quick": ("test_thread", "test_popen", "test_posix", "test_mmap", "test_threadedtempfile"),
    "signals": ("test_signal", "test_faulthandler", "test_eintr"),
    "os": ("test_os", "test_posix", "test_resource", "test_pty", "test_tempfile"),
    "mmap": ("test_mmap", "test_fcntl", "test_ctypes", "test_gc"),
    "asyncio": ("test_asyncio",),
}


def newest_python():
    """Returns the path of the newest installed Python with CPython's own tests, or None."""
    found = {}
    for path in ["python3", *glob.glob("/usr/bin/python3.[0-9]*"), *glob.glob(os.path.expanduser("~/.pyenv/versions/*/bin/python3"))]:
        if path.endswith("-config") or not shutil.which(path):
            continue
        query = "import sys, importlib.util as u; print(sys.version_info[1], sys.executable if u.find_spec('test.test_threading') else '')"
        done = subprocess.run([path, "-c", query], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        if done.returncode == 0 and len(done.stdout.split()) == 2:
            minor, executable = done.stdout.split()
            found.setdefault(int(minor), executable)
    return found[max(found)] if found else None


def clean_environment(work, memtrack_cache):
    """Returns an environment that is the same for each run."""
    folder = os.path.join(work, "home")
    kept = {k: os.environ[k] for k in ("PATH", "CARGO_HOME", "RUSTUP_HOME", "JAVA_HOME", "USER", "LOGNAME") if k in os.environ}
    for variable, name in (("CARGO_HOME", ".cargo"), ("RUSTUP_HOME", ".rustup")):
        if variable not in kept and os.path.isdir(os.path.expanduser("~/" + name)):
            kept[variable] = os.path.expanduser("~/" + name)
    return dict(kept, HOME=folder, TMPDIR=os.path.join(work, "tmp"), SHELL="/bin/bash", LANG="C.UTF-8", TZ="UTC", TERM="dumb", XDG_CACHE_HOME=memtrack_cache)


def descendants():
    """Returns the processes that this one or its children started, also those whose parents have ended, as (pid, name)."""
    parents, names = {}, {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            stat = open(f"/proc/{pid}/stat").read()
        except OSError:
            continue
        rest = stat.rsplit(")", 1)[1].split()
        parents[int(pid)], names[int(pid)] = int(rest[1]), stat.split("(", 1)[1].rsplit(")", 1)[0] + (" (zombie)" if rest[0] == "Z" else "")
    found, begun = [], [os.getpid()]
    while begun:
        parent = begun.pop()
        for pid in [p for p, q in parents.items() if q == parent]:
            found.append((pid, names[pid]))
            begun.append(pid)
    return found


def reap():
    """Reaps the ended processes that have become children of this one."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def kill_descendants():
    until = time.monotonic() + 30
    while time.monotonic() < until:
        left = [pid for pid, name in descendants() if not name.endswith("(zombie)")]
        if not left:
            break
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.05)
        reap()
    reap()


@dataclasses.dataclass
class Run:
    """The outcome of one run of a program."""
    code: int
    lines: list
    seconds: float
    left: list
    hang: str = ""
    recording: str = "-"


# Patterns for times, process ids, addresses and random names, which occur in the output of any program.
VARIES = [(re.compile(pattern), instead) for pattern, instead in (
    (r"0x[0-9a-fA-F]+", "ADDRESS"),
    (r"\b\d+:\d\d:\d\d( load avg: [\d.]+)?", "TIME"),
    (r"(\.sh: line \d+: )\d+", r"\1PID"),
    (r"\(\d+\) panicked", "(THREAD) panicked"),
    # CPython prints the time of a slow test in the line of the next test.
    (r" -- \w+ passed in .*", ""),
    (r"\b\d+(\.\d+)? (ms|sec|s|seconds|min)\b( \d+(\.\d+)? sec\b)?", "TIME"),
    (r"\b\d+(\.\d+)?s\b", "TIME"),
    (r"\b(in|took|duration:) \d+(\.\d+)?", r"\1 TIME"),
    (r"\btest_python_\w+", "FOLDER"),
    (r"\brandom seed: \d+", "random seed: SEED"),
    (r"\b(pid|PID|process)([ =:]+)\d+", r"\1\2PID"),
    (r"\btmp[a-z0-9_]{8}\b", "TEMPORARY"),
)]


def test_results(path):
    """Returns the result of each of CPython's tests."""
    for case in xml.etree.ElementTree.parse(path).iter("testcase"):
        kinds = [child.tag for child in case if child.tag in ("skipped", "failure", "error")] or ["passed"]
        yield f"result: {case.get('name')} {kinds[0]}"


def normalised(text):
    lines = []
    for line in text.splitlines():
        for pattern, instead in VARIES:
            line = pattern.sub(instead, line)
        lines.append(line)
    return lines


class Runner:
    def __init__(self, work, memtrack):
        self.work, self.memtrack = work, memtrack
        self.cache = os.path.join(work, "cache")

    def run(self, program, mode):
        """Runs the program in this mode, alone or under memtrack, and returns the outcome."""
        for name in ("home", "tmp", "run", "recording"):
            shutil.rmtree(os.path.join(self.work, name), ignore_errors=True)
            os.mkdir(os.path.join(self.work, name))
        os.makedirs(self.cache, exist_ok=True)
        folder, recording = os.path.join(self.work, "run"), os.path.join(self.work, "recording", "run.memtrack")
        user = {}
        if program.as_nobody and os.geteuid() == 0:
            user = {"user": NOBODY, "group": NOBODY, "extra_groups": []}
            for name in ("home", "tmp", "run", "recording", "cache"):
                for path, _, files in os.walk(os.path.join(self.work, name)):
                    for entry in (path, *(os.path.join(path, f) for f in files)):
                        os.chown(entry, NOBODY, NOBODY)
        results = os.path.join(self.work, "tmp", "results.xml")
        script = os.path.join(self.work, "programs", program.name.split("-")[0])
        if program.modules:
            command = [program.python, "-m", "test", "--timeout", str(program.seconds), "--junit-xml", results, *program.modules]
        else:
            command = ["bash", os.path.join(script, "run.sh")]
        if mode != "alone":
            command = [self.memtrack, *mode.split(), "-o", recording, "--", *command]
        environment = dict(clean_environment(self.work, self.cache), FILES=script, **dict(program.environment))
        out, err = os.path.join(self.work, "out"), os.path.join(self.work, "err")
        begun, hang = time.monotonic(), ""
        with open(out, "wb") as o, open(err, "wb") as e:
            process = subprocess.Popen(command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=o, stderr=e, start_new_session=True, **user)
            try:
                code = process.wait(program.seconds)
            except subprocess.TimeoutExpired:
                hang = f"did not end within {program.seconds} s; " + self.states()
                code = None
        seconds = time.monotonic() - begun
        left = []
        if not hang:
            # Processes that the program does not wait for may take a moment longer, and so does the collector.
            until = time.monotonic() + 15
            while left != (left := descendants()) or left and time.monotonic() < until:
                time.sleep(0.02)
                reap()
            left = sorted(name for _, name in left)
        kill_descendants()
        if hang:
            process.wait()
        texts = [open(path, errors="replace").read() for path in (out, err)]
        texts[1] = "".join(line for line in texts[1].splitlines(True) if not line.startswith("memtrack:"))
        lines = [f"{name}: {line}" for name, text in zip(("stdout", "stderr"), texts) for line in normalised(text)]
        if program.modules and os.path.exists(results):
            lines += sorted(test_results(results))
        return Run(code, lines, seconds, left, hang, self.recorded(recording) if mode != "alone" else "")

    def states(self):
        """Describes the processes that hang, by name and what each waits for."""
        states = []
        for pid, name in descendants()[:8]:
            try:
                waits = open(f"/proc/{pid}/wchan").read()
            except OSError:
                waits = "?"
            states.append(f"{name} {pid} in {waits}")
        return "processes: " + ", ".join(states)

    def recorded(self, path):
        """Returns the recording's size and counts, for the table."""
        if not os.path.exists(path):
            return "none"
        size = os.path.getsize(path)
        done = subprocess.run([self.memtrack, "summary", "--json", path], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            if done.returncode != 0:
                raise ValueError(done.stderr.strip()[-200:])
            return f"{size / 1024:.0f} KiB, {count(json.loads(done.stdout))}"
        except ValueError as error:
            return f"{size / 1024:.0f} KiB, unreadable: {error}"


def count(summary):
    """Returns the number of allocations or events in a summary."""
    for name in ("allocations", "allocs", "events"):
        numbers = [v for v in values(summary, name) if isinstance(v, (int, float))]
        if numbers:
            return f"{sum(numbers):.0f} {name}"
    return "?"


def values(tree, name):
    if isinstance(tree, dict):
        for key, value in tree.items():
            if key == name:
                yield value
            else:
                yield from values(value, name)
    elif isinstance(tree, list):
        for value in tree:
            yield from values(value, name)


class Expected:
    """The common parts of all runs without memtrack."""

    def __init__(self, first):
        # None stands for any number of lines.
        self.lines, self.codes, self.left = list(first.lines), {first.code}, set(first.left)

    def add(self, run):
        self.codes.add(run.code)
        self.left |= set(run.left)
        common, old, new = [], 0, 0
        for a, b, size in difflib.SequenceMatcher(None, self.lines, run.lines, autojunk=False).get_matching_blocks():
            if a > old or b > new:
                common.append(None)
            common += self.lines[a:a + size]
            old, new = a + size, b + size
        self.lines = [line for i, line in enumerate(common) if line is not None or i == 0 or common[i - 1] is not None]

    def matches(self, lines):
        """Returns whether these lines are the expected ones. Where the runs without memtrack differ, any lines are accepted."""
        parts = [[]]
        for line in self.lines:
            if line is None:
                parts.append([])
            else:
                parts[-1].append(line)
        first, *rest = parts
        if lines[:len(first)] != first:
            return False
        if not rest:
            return len(lines) == len(first)
        place = len(first)
        for part in rest[:-1]:
            while lines[place:place + len(part)] != part:
                place += 1
                if place > len(lines):
                    return False
            place += len(part)
        last = rest[-1]
        return len(lines) - len(last) >= place and lines[len(lines) - len(last):] == last

    def difference(self, run):
        """Returns the differences from the runs without memtrack, or an empty list."""
        if run.hang:
            return [run.hang]
        found = []
        if len(self.codes) == 1 and run.code not in self.codes:
            found.append(f"exit code {run.code}, alone {self.codes}")
        if left := [name for name in run.left if name not in self.left]:
            found.append(f"left running: {', '.join(left)}")
        if not self.matches(run.lines):
            expected = ["(differs between runs alone)" if line is None else line for line in self.lines]
            changed = [line for line in difflib.unified_diff(expected, run.lines, "alone", "recorded", n=1, lineterm="")]
            found += changed[:60] + ([f"and {len(changed) - 60} more lines"] if len(changed) > 60 else [])
        return found


def check(runner, program):
    """Runs the program in all ways; returns its row of the table and its differences."""
    first, second = runner.run(program, "alone"), runner.run(program, "alone")
    if first.hang or second.hang:
        return "skipped: hangs alone", [], [first.seconds, None, None], "-"
    expected = Expected(first)
    expected.add(second)
    result, details, times, recording = "same", [], [min(first.seconds, second.seconds)], "-"
    if all(run.code for run in (first, second)) and not any(line.startswith("stdout") for line in expected.lines if line):
        return f"skipped: fails alone with exit code {first.code}: {(first.lines or ['no output'])[-1]}", [], [*times, None, None], "-"
    for mode in ("run", "run --host"):
        run = runner.run(program, mode)
        times.append(run.seconds)
        recording = run.recording
        found = expected.difference(run)
        if found:
            expected.add(runner.run(program, "alone"))
            found = expected.difference(run)
        if found:
            again = expected.difference(runner.run(program, mode))
            what = "unsteady" if not again else "HANGS" if run.hang else "DIFFERS"
            details += [f"{program.name} under {mode}: {what}", *("  " + line for line in again or found)]
            if result == "same" or what != "unsteady":
                result = f"{what} under {mode}" if result == "same" or result.startswith("unsteady") else result + f", {what} under {mode}"
    free = sum(line is None for line in expected.lines)
    lines = len(expected.lines) - free
    result += f" ({lines} lines" + (f", {free} places not compared" if free else "") + (f", exit code {min(expected.codes)}" if expected.codes != {0} else "") + ")"
    return result, details, times, recording


def version_of(program):
    try:
        done = subprocess.run(program.version, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return "?"
    found = re.search(r"\d+(\.\d+)+", done.stdout)
    return found.group() if found else "?"


def missing(program):
    path = os.environ["PATH"] + ":/usr/sbin"
    return [name for name in program.needs if not (shutil.which(name, path=path) or os.path.isdir(name))]


def install(programs):
    """Installs the packages of the programs that are missing, without starting services."""
    packages = sorted({package for program in programs if missing(program) for package in program.packages})
    if not packages:
        return
    environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive", RUNLEVEL="1")
    subprocess.run(["apt-get", "update", "-qq"], env=environment, check=True)
    for package in packages:
        subprocess.run(["apt-get", "install", "-y", "-qq", "--no-install-recommends", package], env=environment, stdout=subprocess.DEVNULL)
    if "openssh-server" in packages:
        # Starting the service would create this folder.
        os.makedirs("/run/sshd", mode=0o755, exist_ok=True)


def cpython_programs(python):
    """Returns the tests of CPython, as far as this Python has them."""
    folder = ""
    if python:
        query = "import os, test; print(os.path.dirname(test.__file__))"
        folder = subprocess.run([python, "-c", query], stdout=subprocess.PIPE, text=True).stdout.strip()
    for name, modules in MODULES.items():
        there = tuple(m for m in modules if glob.glob(os.path.join(folder, m)) or glob.glob(os.path.join(folder, m + ".py")))
        what = ", ".join(m.replace("test_", "", 1).strip("_") for m in there)
        yield Program("cpython-" + name, what, (python or "python3 with the package test",), (python, "--version"), ("libpython3-testsuite",),
                      modules=there, python=python, seconds=900, quick=name == "quick")


def table(rows):
    """Formats rows of text as a Markdown table."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |" for row in rows]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("memtrack", nargs="?")
    parser.add_argument("--only", nargs="*", metavar="NAME", default=[])
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--install", action="store_true")
    parser.add_argument("--python", metavar="PATH", help="the Python whose tests are run, instead of the newest")
    options = parser.parse_args()
    programs = [*PROGRAMS, *cpython_programs(options.python or newest_python())]
    if unknown := set(options.only) - {p.name for p in programs}:
        sys.exit(f"no such programs: {', '.join(sorted(unknown))}")
    programs = [p for p in programs if (not options.only or p.name in options.only) and (p.quick or not options.quick)]
    if options.list:
        print("\n".join(f"{p.name}: {p.what}" for p in programs))
        return
    if options.install:
        install(programs)
        if not newest_python():
            print("no Python with the package test: its tests are skipped")
        elif any(not p.python for p in programs):
            chosen = {p.name for p in programs}
            programs = [p for p in [*PROGRAMS, *cpython_programs(options.python or newest_python())] if p.name in chosen]
    # Orphaned processes become children of this one, which can thus find and end them.
    ctypes.CDLL(None, use_errno=True).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
    # If this process is terminated, it also ends the program that it is running.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    rows = [("program", "version", "what was run", "alone", "run", "run --host", "recorded with --host", "result")]
    failed = skipped = same = 0
    with tempfile.TemporaryDirectory(prefix="mt-", ignore_cleanup_errors=True) as work:
        # A server that changes its user, and a program that runs as another user, must reach their files.
        os.chmod(work, 0o755)
        memtrack = shutil.copy(options.memtrack, os.path.join(work, "memtrack"))
        shutil.copytree(os.path.join(here, "programs"), os.path.join(work, "programs"))
        runner = Runner(work, memtrack)
        for program in programs:
            details, times, recording, version = [], [None] * 3, "-", "-"
            if lacking := missing(program):
                result = f"skipped: no {', '.join(os.path.basename(name) for name in lacking)}"
            else:
                version = version_of(program)
                try:
                    result, details, times, recording = check(runner, program)
                finally:
                    kill_descendants()
            skipped, same = skipped + result.startswith("skipped"), same + result.startswith("same")
            failed += "DIFFERS" in result or "HANGS" in result
            print("\n".join([f"{program.name}: {result}", *details]), flush=True)
            rows.append((program.name, version, program.what, *(f"{t:.1f} s" if t is not None else "-" for t in times), recording, result))
    print(table(rows))
    print(f"{same} of {len(programs) - skipped} programs unchanged" + (f", {skipped} skipped" if skipped else ""))
    sys.exit(failed != 0)


main()
