"""No command that reads a hostile pickle panics, runs code, takes more than 4 s, or uses more than 1 GiB of address space.

`stats` rejects every file that the manifest rejects (exit code other than 0) and reads every file that it accepts (exit code
other than 3, unreadable)."""
import json
import os
import shutil
import tempfile

from common import arguments, crashed, finish, run

memtrack, roots = arguments(__doc__)
verbs = [v for v in ("tracker", "stats", "summary", "peak") if run([memtrack, v, "--help"])[0] == 0]
bad, n, cwd = [], 0, tempfile.mkdtemp()
for root in roots:
    for entry in json.load(open(os.path.join(root, "hostile", "manifest.json"))):
        file = os.path.join(root, "hostile", entry["file"])
        if not os.path.exists(file):
            continue
        for verb in verbs:
            n += 1
            code, out, err, seconds = run([memtrack, verb, file], timeout=10, limit_mib=1024, cwd=cwd)
            if crashed(code, err) or seconds > 4:
                bad.append(f"{verb} {entry['file']}: exit {code}, {seconds:.1f} s ({entry['why']})")
            elif verb == "stats" and entry["expect"] == "reject" and code == 0:
                bad.append(f"stats {entry['file']}: accepted ({entry['why']})")
            elif verb == "stats" and entry["expect"] == "accept" and code == 3:
                bad.append(f"stats {entry['file']}: rejected ({entry['why']})")
if os.path.exists(os.path.join(cwd, "HOSTILE_RAN")):
    bad.insert(0, "CODE FROM A PICKLE WAS RUN")
shutil.rmtree(cwd)
finish(bad, f"{n} hostile runs over {verbs}, {len(bad)} bad", not bad)
