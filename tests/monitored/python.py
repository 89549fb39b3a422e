#!/usr/bin/env python3
"""python.py MEMTRACK [--programs FOLDER] [--python PY ...] [--only NAME]: the memory of each line of a Python program.

Each program of python/ runs twice under each interpreter: under tracemalloc, whose sums by line at the program's
checkpoint (its peak) are the truth, and under `memtrack run --host`. Then `memtrack top RUN --by line --at peak --json
-n 10000` must report the same; a line's bytes are those of the host heap's rows whose `mine` is that file and line.

A program passes if each line with at least 3 % of its bytes is within 10 % of the truth, or within twice the error that
its row states; if their sum is within 6 %; and if it ends with the same code and output.
Interpreters: those given, otherwise every python3.N of pyenv and of the PATH (3.8 and newer) that has sqlite3.
The ratio of times is printed, but not checked."""
import argparse
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

here = os.path.dirname(os.path.abspath(__file__))


def interpreters():
    found = {}
    for path in sorted(glob.glob(os.path.expanduser("~/.pyenv/versions/3.*/bin/python3"))) + [p for p in (shutil.which(f"python3.{n}") for n in range(8, 20)) if p and "shims" not in p]:
        probe = subprocess.run([path, "-c", "import sys, sqlite3; print('%d.%d' % sys.version_info[:2], sys.executable)"], capture_output=True, text=True)
        if probe.returncode == 0:
            version, real = probe.stdout.split()[:2]
            if tuple(map(int, version.split("."))) >= (3, 8):
                found.setdefault(version, real)
    return [found[v] for v in sorted(found, key=lambda v: tuple(map(int, v.split("."))))]


def run(command, cwd):
    start = time.time()
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=300, env=dict(os.environ, PYTHONHASHSEED="1"))
    return done, time.time() - start


def bytes_by_line(memtrack, recording, program):
    done = subprocess.run([memtrack, "top", recording, "--by", "line", "--at", "peak", "--json", "-n", "10000"], capture_output=True, text=True, timeout=120)
    if done.returncode:
        return None, "top: " + (done.stderr.strip().splitlines() or ["?"])[-1]
    lines = {}
    for device in json.loads(done.stdout)["devices"]:
        if device["device"]["kind"] != "host":
            continue
        for row in device["rows"]:
            mine = row.get("mine")
            if not mine or os.path.basename(mine["file"] or "") != os.path.basename(program):
                continue
            error = row.get("requested_bytes_error") or {}
            size, spread = lines.get(mine["line"], (0, 0))
            lines[mine["line"]] = (size + row["requested_bytes"], spread + (error.get("standard_error") or 0) * 1.96)
    return lines, None


def judge(memtrack, python, program, work):
    truth_file = os.path.join(work, "truth.json")
    done, _ = run([python, os.path.join(here, "python", "truth.py"), program, truth_file], work)
    if done.returncode:
        return False, "tracemalloc: " + (done.stderr.strip().splitlines() or ["?"])[-1], 0
    source = open(program).read().splitlines()
    # The memory of an import depends on what the harness imported before.
    truth = {int(k): v[0] for k, v in json.load(open(truth_file)).items() if not source[int(k) - 1].lstrip().startswith(("import ", "from "))}
    whole = sum(truth.values())
    command = [python, program]
    environment = os.path.dirname(os.path.abspath(program))
    os.environ["PYTHONPATH"] = os.pathsep.join([environment, os.path.join(here, "python")])
    plain, plain_time = run(command, work)
    recording = os.path.join(work, "run.memtrack")
    recorded, recorded_time = run([memtrack, "run", "--host", "-o", recording, "--force", "--", *command], work)
    if (plain.returncode, plain.stdout) != (recorded.returncode, recorded.stdout):
        return False, f"it ended with {recorded.returncode} instead of {plain.returncode}, or printed something else", 0
    got, why = bytes_by_line(memtrack, recording, program)
    if got is None:
        return False, why, 0
    wrong, judged = [], 0
    for line, size in sorted(truth.items(), key=lambda item: -item[1]):
        if size < 0.03 * whole:
            continue
        reported, spread = got.get(line, (0, 0))
        judged += 1
        if abs(reported - size) > max(0.10 * size, 2 * spread):
            wrong.append(f"line {line} {size:,} B, shown {reported:,.0f} ± {spread:,.0f}")
    total = sum(size for line, (size, _) in got.items() if line in truth)
    if abs(total - whole) > 0.06 * whole:
        wrong.append(f"sum {whole:,} B, shown {total:,.0f}")
    return not wrong, "; ".join(wrong[:3]) or f"{judged} lines", recorded_time / plain_time


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("memtrack")
    parser.add_argument("--programs", default=os.path.join(here, "python"))
    parser.add_argument("--python", nargs="*")
    parser.add_argument("--only", nargs="*")
    options = parser.parse_args()
    programs = sorted(p for p in glob.glob(os.path.join(os.path.abspath(options.programs), "*.py")) if os.path.basename(p) not in ("common.py", "truth.py"))
    if options.only:
        programs = [p for p in programs if os.path.basename(p)[:-3] in options.only]
    right = count = 0
    for python in options.python or interpreters():
        version = subprocess.run([python, "-c", "import sys; print(sys.version.split()[0])"], capture_output=True, text=True).stdout.strip()
        for program in programs:
            work = tempfile.mkdtemp()
            try:
                ok, what, ratio = judge(os.path.abspath(options.memtrack), python, program, work)
            except subprocess.TimeoutExpired:
                ok, what, ratio = False, "did not end in time", 0
            finally:
                shutil.rmtree(work, ignore_errors=True)
            count += 1
            right += ok
            print(f"{'right' if ok else 'fails'}: {version} {os.path.basename(program)[:-3]}: {what}; time {ratio:.2f}", flush=True)
    print(f"{right} of {count} programs of Python: the memory of lines agrees with tracemalloc")
    sys.exit(right != count or not count)


main()
