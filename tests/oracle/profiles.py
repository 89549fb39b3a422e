"""`memtrack timeline` and `memtrack categories` print the results of PyTorch's memory profile for every operator trace.

For each profiles/MODEL/trace.optrace.jsonl.gz:
  memtrack timeline TRACE --compat --device cpu -o X.json          = timeline_cpu.json.gz (coalesced export)
  memtrack timeline TRACE --compat --device cpu -o X.raw.json.gz   = raw_cpu.json.gz
  memtrack categories TRACE --compat --tensors --json              = categories of oracle.json.gz, in that order:
      a JSON array of {"id", "ptr", "alloc", "device", "version", "category"}; category is null where PyTorch has none,
      ptr a number, device as in the trace ("cpu", "cuda:0").
"""
import gzip
import json
import os
import shutil
import tempfile

from common import arguments, finish, run

memtrack, roots = arguments(__doc__)
bad, n = [], 0
work = tempfile.mkdtemp(prefix="memtrack-profiles-")


def numbers(data):
    return json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)


def device_text(device):
    return device[0] if device[1] is None else f"{device[0]}:{device[1]}"


def expect(name, what, command, want, made=None):
    global n
    n += 1
    code, out, err, _ = run([memtrack, *command], timeout=60)
    if code != 0:
        bad.append(f"fails: {name}: {' '.join(command[:1] + command[2:])}: exit {code}: {err.decode(errors='replace').strip()[:160]}")
        return
    try:
        got = numbers(open(made, "rb").read() if made else out)
    except (OSError, ValueError) as e:
        bad.append(f"no answer: {name} {what}: {e}")
        return
    if got != want:
        first = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
        bad.append(f"differs: {name} {what}: {len(got)} against {len(want)} entries, first at {first}: "
                   f"{str(got[first:first + 1])[:120]} against {str(want[first:first + 1])[:120]}")


for root in roots:
    base = os.path.join(root, "profiles")
    for name in sorted(os.listdir(base)):
        folder = os.path.join(base, name)
        trace = os.path.join(folder, "trace.optrace.jsonl.gz")
        if not os.path.exists(trace):
            continue
        oracle = json.load(gzip.open(os.path.join(folder, "oracle.json.gz")))
        for what, file in (("coalesced", "timeline_cpu.json.gz"), ("raw", "raw_cpu.json.gz")):
            made = os.path.join(work, f"{name}." + ("json" if what == "coalesced" else "raw.json.gz"))
            want = numbers(open(os.path.join(folder, file), "rb").read())
            expect(name, what, ["timeline", trace, "--compat", "--device", "cpu", "-o", made], want, made)
        want = [{"id": k.get("id"), "ptr": k.get("ptr"), "alloc": k.get("alloc"), "device": device_text(k["device"]),
                 "version": version, "category": category} for k, version, category in oracle["categories"]]
        expect(name, "categories", ["categories", trace, "--compat", "--tensors", "--json"], want)
shutil.rmtree(work)
finish(bad, f"{n - len(bad)} of {n} profile answers equal", not bad)
