#!/usr/bin/env python3
"""Keeps what every verb prints, as text and as JSON, for every fixture and sample: to see that a change of the code changes
nothing that users see.

  outputs.py MEMTRACK FOLDER          runs everything, and writes one file per call to FOLDER
  outputs.py --compare BEFORE AFTER   prints which files differ, and the first lines of each difference

Recordings of `memtrack run` differ from run to run, so they are made once, in FOLDER/recordings; copy that folder, or pass
--recordings FOLDER, to use the same ones again. A call that fails is kept too: its exit code and message. Standard library only."""
import argparse
import concurrent.futures
import difflib
import gzip
import hashlib
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests" / "fixtures"
SHARED = ROOT.parent / "shared"

#: The calls for each kind of input. `{}` is the input, `OUT` a file of which the content is kept.
SNAPSHOT = [
    "summary {}", "summary --explain {}", "top {}", "top --by line {}", "top --by stack --at peak {}", "top --by operator {}",
    "top --by module --at end {}", "top --by size {}", "top --by python {}", "top --by category {}", "top --by phase {}", "top --by frame {}",
    "top --by file --at peak --wide {}", "sizes {}", "sizes --at end {}", "peak {}", "peak --of reserved {}", "leaks {}", "leaks --by stack {}",
    "check --max-peak 1M --max-leak 1M --max-fragmentation 10% {}", "check --against {} {}", "diff {} {}", "compare {} {}",
    "memory {}", "memory --folded {}", "segments {}", "segments --folded {}", "stats {}", "trace {}", "processes {}",
    "replay {}", "ranks {} {}", "convert {} OUT.json", "convert {} OUT.pickle", "convert {} OUT.memtrack",
    "convert {} OUT.csv", "convert {} OUT.folded", "convert {} OUT.pb.gz", "convert {} OUT.speedscope.json",
    "convert {} OUT.pftrace", "view {} -o OUT.html", "trace-plot {} -o OUT.html", "segment-plot {} -o OUT.html",
    "memory {} -o OUT.svg", "segments {} -o OUT.svg", "ranks {} {} -o OUT.html", "convert --scrub {} OUT.json",
    "categories {}", "advise {}",
]
TRACE = ["categories {}", "categories --tensors {}", "advise {}", "modules {}", "timeline {} -o OUT.json", "timeline {} -o OUT.html",
         "timeline {} -o OUT.svg", "timeline {} -o OUT.png", "profile-plot {} -o OUT.html"]
WORKLOAD = ["simulate {}", "simulate {} -o OUT.pickle"]
CYCLES = ["cycles {}", "cycles {} -o OUT.html", "cycles {} -o OUT.svg"]
TRACKER = ["tracker {}", "tracker {} -o OUT.html"]
ALONE = ["--help", "man FOLDER"]
#: Verbs that write a file say with --json what they wrote; the others print their answer.
WITHOUT_JSON = ("--help", "man", "completions", "help", "schema")


def inputs():
    """Returns pairs of a name and a path, and the calls for them."""
    found = []
    folders = [FIXTURES / "snapshots", ROOT / "memtrack-core/fuzz/corpus/snapshots", ROOT / "memtrack-core/fuzz/corpus/recordings"]
    for folder in [*folders, SHARED / "spec" / "samples"]:
        for file in sorted(folder.rglob("*")):
            if file.name.endswith((".pickle", ".memtrack", ".json.gz", ".pickle.gz")):
                found.append((file, SNAPSHOT))
    for folder, suffix, calls in [
        (FIXTURES / "optrace", ".optrace.jsonl.gz", TRACE), (FIXTURES / "advice", ".optrace.jsonl.gz", TRACE),
        (FIXTURES / "modules", ".optrace.jsonl.gz", TRACE), (FIXTURES / "allocator", ".workload.jsonl", WORKLOAD),
        (FIXTURES / "cycles", ".json", CYCLES), (SHARED / "oracle" / "memory_tracker", ".pickle", TRACKER),
    ]:
        found += [(file, calls) for file in sorted(folder.rglob("*" + suffix))]
    return found


def record(memtrack, folder):
    """Makes recordings of all kinds, once."""
    folder.mkdir(parents=True, exist_ok=True)
    programs = {
        "python": [sys.executable, "-SE", "-c", "kept = [[n] for n in range(500)]\n"
                   "def memtrack_mark(): pass\nfor n in range(3):\n    kept.append(bytes(3_000_000))\n    memtrack_mark()"],
        "shell": ["sh", "-c", "ls / >/dev/null; sort /etc/passwd >/dev/null"],
    }
    for name, command in programs.items():
        file = folder / f"{name}.memtrack"
        if not file.exists():
            subprocess.run([memtrack, "run", "--host", "-o", file, "--", *command], check=True, capture_output=True)
    return [(file, SNAPSHOT) for file in sorted(folder.glob("*.memtrack"))]


def shortened(data):
    """Returns data, or its hash if it is long or binary."""
    if b"\0" in data or len(data) > 1 << 18:
        return f"{len(data)} bytes, {hashlib.sha256(data).hexdigest()}\n".encode()
    return data


def cleaned(text, words):
    """Removes what differs from machine to machine or from call to call."""
    for word, name in words:
        text = text.replace(word, name)
    # Times of the call itself.
    return re.sub(rb"\b(in|took) \d+(\.\d+)? (ms|s)\b", b"\\1 TIME", text)


def one(memtrack, file, call, json, target):
    """Runs a call, and writes what it printed and wrote."""
    with tempfile.TemporaryDirectory() as work:
        words = [word.replace("{}", str(file or "")) for word in call.split()]
        out = next((Path(work) / word for word in words if word.startswith("OUT")), None)
        words = [str(Path(work) / word) if word.startswith(("OUT", "FOLDER")) else word for word in words]
        environment = dict(os.environ, NO_COLOR="1", COLUMNS="120", HOME=work, MEMTRACK_SYMBOLS="")
        done = subprocess.run([memtrack, *words, *(["--json"] if json else [])], capture_output=True, cwd=work, timeout=300,
                              env=environment)
        parts = [f"$ memtrack {call}{' --json' if json else ''}\nexit code {done.returncode}\n".encode(), b"--- stdout\n", done.stdout,
                 b"--- stderr\n", done.stderr]
        written = [out] if out and out.exists() else sorted(Path(work).glob("FOLDER/*"))
        for path in written:
            data = path.read_bytes()
            data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
            parts += [f"--- {path.name}\n".encode(), data]
        words = [(work.encode(), b"WORK"), (str(ROOT).encode(), b"ROOT"), (str(SHARED).encode(), b"SHARED")]
        target.write_bytes(b"".join(shortened(cleaned(part, words)) for part in parts))


def name_of(file, call, json):
    name = re.sub(r"[^A-Za-z0-9.=%-]+", "_", call.replace("{}", "").strip())
    place = "alone" if file is None else "/".join(file.parts[-3:-1]).replace("/", "_") + "_" + file.name
    return f"{place}/{name}{'.json' if json else ''}.txt"


def keep(memtrack, folder, recordings):
    memtrack = str(Path(memtrack).resolve())
    cases = [(None, call) for call in ALONE]
    verbs = subprocess.run([memtrack, "schema"], capture_output=True, text=True).stdout.split()
    cases += [(None, f"schema {verb}") for verb in verbs if re.fullmatch(r"[a-z-]+", verb)]
    for file, calls in inputs() + record(memtrack, recordings or folder / "recordings"):
        cases += [(file, call) for call in calls]
    tasks = []
    for file, call in cases:
        for json in (False, True):
            if json and call.split()[0] in WITHOUT_JSON:
                continue
            target = folder / name_of(file, call, json)
            target.parent.mkdir(parents=True, exist_ok=True)
            tasks.append((memtrack, file, call, json, target))
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for done in [pool.submit(one, *task) for task in tasks]:
            done.result()
    print(f"{len(tasks)} calls")


def compare(before, after):
    names = {str(path.relative_to(root)) for root in (before, after) for path in root.rglob("*.txt")}
    differing = 0
    for name in sorted(names):
        texts = [(root / name).read_text(errors="replace").splitlines() if (root / name).exists() else [] for root in (before, after)]
        if texts[0] != texts[1]:
            differing += 1
            print(f"differs: {name}")
            lines = [line for line in difflib.unified_diff(*texts, lineterm="", n=0) if not line.startswith(("---", "+++", "@@"))]
            print("\n".join("    " + line[:160] for line in lines[:6]))
    print(f"{differing} of {len(names)} outputs differ")
    return differing


words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
words.add_argument("first")
words.add_argument("second", type=Path)
words.add_argument("--compare", action="store_true")
words.add_argument("--recordings", type=Path)
asked = words.parse_args()
if asked.compare:
    sys.exit(compare(Path(asked.first), asked.second) != 0)
keep(asked.first, asked.second, asked.recordings)
