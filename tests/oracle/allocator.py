"""`memtrack simulate WORKLOAD` prints the results of PyTorch's caching allocator, operation by operation.

Within one operation, consecutive free_completed events are compared as a set, and so are consecutive segment_free and
segment_unmap events: PyTorch's order is a hash table's. The texts of errors with INTERNAL ASSERT are not compared."""
import json
import os

from common import arguments, finish, plain, read, run

memtrack, roots = arguments(__doc__)
GROUP = {"free_completed": 1, "segment_free": 2, "segment_unmap": 2}


def canonical(line):
    r = json.loads(line)
    events, out, i = r.pop("events", []), [], 0
    while i < len(events):
        j, group = i, GROUP.get(events[i][1])
        while group and j < len(events) and GROUP.get(events[j][1]) == group and events[j][0] == events[i][0]:
            j += 1
        out += sorted(events[i:j], key=json.dumps) if group else [events[i]]
        i = max(j, i + 1)
    if out:
        r["events"] = out
    if "INTERNAL ASSERT" in r.get("error", ""):
        r["error"] = "fails"
    return r


good, bad, n = 0, [], 0
for root in roots:
    base = os.path.join(root, "allocator")
    for file in sorted(os.listdir(base)):
        name, found, _ = file.partition(".workload.jsonl")
        if not found:
            continue
        n += 1
        want = [canonical(l) for l in read(os.path.join(base, name + ".expected.jsonl")).decode().splitlines()]
        code, out, err, _ = run([memtrack, "simulate", plain(os.path.join(base, name + ".workload.jsonl"))], timeout=120)
        try:
            got = [canonical(l) for l in out.decode().splitlines()]
        except ValueError:
            got = []
        if code == 0 and got == want:
            good += 1
        else:
            k = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
            bad.append(f"{name}: first difference at line {k} of {len(want)} (exit {code})")
finish(bad, f"{good} of {n} allocator workloads equal", good == n)
