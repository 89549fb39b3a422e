"""`memtrack tracker STATS.pickle --top N` prints the text of PyTorch's MemoryTracker.summary(top=N)."""
import os

from common import arguments, finish, read, run

memtrack, roots = arguments(__doc__)
bad, n = [], 0
for root in roots:
    base = os.path.join(root, "memory_tracker")
    for name in sorted(os.listdir(base)):
        folder = os.path.join(base, name)
        if not os.path.isdir(folder):
            continue
        for stats in ("stats.pickle", "stats_no_op_index.pickle"):
            for top in (20, 5):
                n += 1
                code, out, err, _ = run([memtrack, "tracker", os.path.join(folder, stats), "--top", str(top)])
                if code != 0 or out.strip() != read(os.path.join(folder, f"summary_{top}.txt")).strip():
                    bad.append(f"differs: {name}/{stats} --top {top} (exit {code})")
finish(bad, f"{n - len(bad)} of {n} tracker summaries equal", not bad)
