#!/usr/bin/env python3
"""page.py MEMTRACK SNAPSHOT...: the viewer's page shows, at random events, the blocks that a replay of the snapshot finds live.

Writes each page with `memtrack trace-plot FILE -o PAGE.html`, queries it through window.memtrack in headless Chromium (page.mjs), and
replays the pickle here, backwards from the blocks that are live at its end. Compares addresses and pending frees. Console errors, dialogs
and network requests are failures. Needs Node and Debian's chromium; MEMTRACK_PLAYWRIGHT is a folder whose node_modules has
playwright-core, which is otherwise installed with npm. A snapshot NAME.gz is decompressed first."""
import json
import os
import pickle
import random
import subprocess
import sys
import tempfile

from common import plain

here = os.path.dirname(os.path.abspath(__file__))
if len(sys.argv) < 3:
    sys.exit(__doc__)
memtrack, files = os.path.abspath(sys.argv[1]), [plain(file.removesuffix(".gz")) for file in sys.argv[2:]]
playwright = os.environ.setdefault("MEMTRACK_PLAYWRIGHT", os.path.join(tempfile.gettempdir(), "memtrack-playwright"))
if not os.path.isdir(os.path.join(playwright, "node_modules", "playwright-core")):
    os.makedirs(playwright, exist_ok=True)
    subprocess.run(["npm", "install", "--silent", "--no-fund", "--no-audit", "playwright-core"], cwd=playwright, check=True, capture_output=True)


class Plain(pickle.Unpickler):
    def find_class(self, module, name):
        raise pickle.UnpicklingError(module + "." + name)


def final_blocks(snapshot, device):
    live = {}
    for segment in snapshot["segments"]:
        if segment["device"] != device:
            continue
        at = segment["address"]
        for block in segment["blocks"]:
            if block["state"].startswith("active"):
                live[at] = (block.get("requested_size", block["size"]), block["state"] != "active_allocated")
            at += block["size"]
    return live


def replay(snapshot, device, wanted):
    """Returns the state after each wanted event: {address: (size, pending)}."""
    trace, live, states = snapshot["device_traces"][device], final_blocks(snapshot, device), {}
    for index in range(len(trace) - 1, -2, -1):
        if index in wanted:
            states[index] = dict(live)
        if index < 0:
            break
        event = trace[index]
        address, action = event.get("addr"), event["action"]
        if action == "alloc":
            live.pop(address, None)
        elif action == "free_completed":
            live[address] = (event["size"], True)
        elif action == "free_requested":
            live[address] = (live.get(address, (event["size"], 0))[0], False)
    return states


bad, n = [], 0
work = tempfile.mkdtemp(prefix="memtrack-viewer-")
for file in files:
    name = os.path.basename(file)
    snapshot = Plain(open(file, "rb")).load()
    page, queries_file, results_file = (os.path.join(work, name + x) for x in (".html", ".q", ".a"))
    p = subprocess.run([memtrack, "trace-plot", file, "-o", page], capture_output=True, text=True, timeout=120)
    if p.returncode or not os.path.exists(page):
        bad.append(f"{name}: no page: {p.stderr.strip()[:120]}")
        n += 1
        continue
    rng, queries = random.Random(7), []
    devices = [d for d, trace in enumerate(snapshot["device_traces"]) if trace]
    for index, device in enumerate(devices):
        events = len(snapshot["device_traces"][device])
        for event in sorted({-1, 0, events - 1, *(rng.randrange(events) for _ in range(20))}):
            queries.append({"device": index, "event": event, "ordinal": device})
    json.dump(queries, open(queries_file, "w"))
    subprocess.run(["node", os.path.join(here, "page.mjs"), page, queries_file, results_file], timeout=300, capture_output=True)
    a = json.load(open(results_file)) if os.path.exists(results_file) else {"failed": "the browser ended"}
    n += 1
    if a.get("failed") or a.get("errors") or a.get("requests"):
        bad.append(f"{name}: {a.get('failed') or a.get('errors') or a.get('requests')}"[:200])
        continue
    states = {d: replay(snapshot, d, {q["event"] for q in queries if q["ordinal"] == d}) for d in devices}
    for q, answer in zip(queries, a["answers"]):
        n += 1
        want = states[q["ordinal"]][q["event"]]
        got = {int(x[0], 16): (x[1], x[2]) for x in answer["blocks"]}
        if set(got) != set(want):
            bad.append(f"{name} device {q['ordinal']} event {q['event']}: {len(got)} blocks shown, {len(want)} live, {len(set(got) ^ set(want))} differ")
        elif any(got[x][1] != want[x][1] for x in want):
            bad.append(f"{name} device {q['ordinal']} event {q['event']}: pending frees differ")
    print(f"{name}: ready in {a['ready_ms']} ms, page {os.path.getsize(page) >> 10} KiB", file=sys.stderr)
for line in bad[:20]:
    print(line)
print(f"{n - len(bad)} of {n} right")
sys.exit(bool(bad))
