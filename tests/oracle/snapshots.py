"""`stats`, `trace`, `segments --folded` and `memory --folded` print PyTorch 2.15's text for every snapshot.

One more newline at the end is allowed. `compare --folded BEFORE AFTER` prints the lines `only_before = [..]` and `only_after = [..]`
(compared as sets) and the folded lines. Where PyTorch raises an error, memtrack must not crash.

--real FOLDER: more snapshots and their reports, for data that cannot be published: FOLDER/real/NAME.pickle[.gz] with FOLDER/real/NAME/,
and in FOLDER/compare the pairs of those."""
import hashlib
import json
import os

from common import arguments, crashed, finish, plain, read, run

memtrack, roots, real = arguments(__doc__, real=True)
VERBS = {"stats": ["stats"], "trace": ["trace"], "segments": ["segments", "--folded"], "memory": ["memory", "--folded"]}
bad, crash, n = [], [], 0


def same(out, sha256):
    return any(hashlib.sha256(b).hexdigest() == sha256 for b in (out, out[:-1] if out.endswith(b"\n") else out))


def check(label, expected, pickle):
    global n
    expected = json.load(open(expected))
    for op, verb in VERBS.items():
        if op not in expected:
            continue
        n += 1
        code, out, err, _ = run([memtrack, *verb, pickle], timeout=120)
        if crashed(code, err):
            crash.append(f"crash: {op} {label} (exit {code})")
        elif "error" not in expected[op] and not (code == 0 and same(out, expected[op]["sha256"])):
            bad.append(f"differs: {op} {label} (exit {code})")


def check_folder(kind, base):
    """Checks each NAME.pickle[.gz] that has a NAME/expected.json."""
    for name in sorted(os.listdir(base)) if os.path.isdir(base) else []:
        expected = os.path.join(base, name, "expected.json")
        pickle = locate(os.path.join(base, name + ".pickle"))
        if os.path.exists(expected) and pickle:
            check(f"{kind}/{name}", expected, pickle)


def check_pairs(base, folder):
    """Checks those pairs in `base` whose snapshots are in `folder`."""
    global n
    for name in sorted(os.listdir(base)) if os.path.isdir(base) else []:
        expected = os.path.join(base, name, "expected.json")
        if not os.path.exists(expected):
            continue
        e = json.load(open(expected))
        before, after = (locate(os.path.join(folder, e[which].removesuffix(".gz"))) for which in ("before", "after"))
        if not (before and after):
            continue
        n += 1
        code, out, err, _ = run([memtrack, "compare", "--folded", before, after], timeout=120)
        lists, lines = only_lists(out)
        want_lists, _ = only_lists(read(os.path.join(base, name, "stdout.txt")))
        want = read(os.path.join(base, name, "compare.folded")).decode(errors="replace").splitlines()
        if crashed(code, err):
            crash.append(f"crash: compare {name} (exit {code})")
        elif code != 0 or lines != want or lists != want_lists:
            bad.append(f"differs: compare {name} (exit {code})")


def locate(path):
    return plain(path) if os.path.exists(path) or os.path.exists(path + ".gz") else None


def only_lists(out):
    """Returns {name: set of addresses} and the other lines."""
    lists, rest = {}, []
    for line in out.decode(errors="replace").splitlines():
        name, found, addresses = line.partition(" = [")
        if found and name in ("only_before", "only_after"):
            lists[name] = {a.strip() for a in addresses.rstrip("]").split(",") if a.strip()}
        else:
            rest.append(line)
    return lists, rest


for root in roots:
    base = os.path.join(root, "snapshots")
    check_folder("synth", os.path.join(base, "synth"))
    profiles = os.path.join(root, "profiles")
    for name in sorted(os.listdir(profiles)):
        expected = os.path.join(profiles, name, "viz", "expected.json")
        if os.path.exists(expected):
            check(f"profiles/{name}", expected, locate(os.path.join(profiles, name, "snapshot.pickle")))
    check_pairs(os.path.join(base, "compare"), os.path.join(base, "synth"))
if real:
    check_folder("real", os.path.join(real, "real"))
    check_pairs(os.path.join(real, "compare"), os.path.join(real, "real"))
finish(crash + bad, f"{n - len(bad) - len(crash)} of {n} outputs right, {len(bad)} differ, {len(crash)} crash", not (bad or crash))
