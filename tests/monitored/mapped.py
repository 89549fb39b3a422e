#!/usr/bin/env python3
"""mapped.py MEMTRACK [--programs FOLDER] [--only NAME ...]: the memory that a program maps, by line, at the peak and at the end.

Each program of mapped/ is compiled with -O0 -g and run under `memtrack run --host`. A comment on a line states its live
bytes at the peak and at the end. `memtrack top RUN --by line --at peak|end --json -n 10000` must print the same for
the device whose kind is "mapped": each line within 1 %, a line without live bytes at most 64 KiB, and all rows of the
device together at most 1 MiB above the sum of the lines."""
import argparse
import glob
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

here = os.path.dirname(os.path.abspath(__file__))


def reported_rows(memtrack, recording, moment):
    done = subprocess.run([memtrack, "top", recording, "--by", "line", "--at", moment, "--json", "-n", "10000"], capture_output=True, text=True, timeout=60)
    if done.returncode:
        return None, (done.stderr.strip().splitlines() or ["?"])[-1]
    devices = [d for d in json.loads(done.stdout)["devices"] if d["device"]["kind"] == "mapped"]
    if not devices:
        return None, "there is no device of kind mapped"
    return devices[0]["rows"], None


def judge(memtrack, source, work):
    program = os.path.join(work, os.path.basename(source)[:-2])
    subprocess.run(["cc", "-O0", "-g", "-fno-omit-frame-pointer", "-o", program, source], check=True)
    recording = os.path.join(work, "run.memtrack")
    done = subprocess.run([memtrack, "run", "--host", "-o", recording, "--force", "--", program], cwd=work, capture_output=True, text=True, timeout=60)
    if done.returncode:
        return f"it ended with {done.returncode} instead of 0"
    wrong = []
    for index, moment in enumerate(("peak", "end")):
        rows, why = reported_rows(memtrack, recording, moment)
        if rows is None:
            return f"{moment}: {why}"
        expected = 0
        for number, line in enumerate(open(source), 1):
            stated = re.search(r"// holds (\d+) at the peak, (\d+) at the end", line)
            if not stated:
                continue
            bytes_ = int(stated[index + 1])
            expected += bytes_
            reported = sum(r["requested_bytes"] for r in rows if r.get("mine") and r["mine"]["line"] == number and os.path.basename(r["mine"]["file"] or "") == os.path.basename(source))
            if abs(reported - bytes_) > max(bytes_ * 0.01, 65536 if not bytes_ else 0):
                wrong.append(f"{moment}: line {number} {bytes_:,}, shown {reported:,}")
        whole = sum(r["requested_bytes"] for r in rows)
        if whole > expected + (1 << 20):
            wrong.append(f"{moment}: in total {expected:,}, shown {whole:,}")
    return "; ".join(wrong)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("memtrack")
    parser.add_argument("--programs", default=os.path.join(here, "mapped"))
    parser.add_argument("--only", nargs="*")
    options = parser.parse_args()
    sources = [s for s in sorted(glob.glob(os.path.join(os.path.abspath(options.programs), "*.c"))) if not options.only or os.path.basename(s)[:-2] in options.only]
    right = 0
    for source in sources:
        work = tempfile.mkdtemp()
        try:
            why = judge(os.path.abspath(options.memtrack), source, work)
        except subprocess.TimeoutExpired:
            why = "did not end in time"
        finally:
            shutil.rmtree(work, ignore_errors=True)
        right += not why
        print(f"{'fails' if why else 'right'}: {os.path.basename(source)[:-2]}{': ' + why if why else ''}", flush=True)
    print(f"{right} of {len(sources)} programs: mapped memory is shown by line")
    sys.exit(right != len(sources) or not sources)


main()
