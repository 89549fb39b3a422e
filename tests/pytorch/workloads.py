"""Runs random workloads on PyTorch's allocator and memtrack's: every result must be equal."""
import os
import random
import sys

from common import OUT, TOOLS, arguments, run

sys.path.insert(0, TOOLS)
from workloads import GB, MB, W, cnn, kvcache, random_mix, transformer  # noqa: E402

VALUES = {
    "expandable_segments": ["True", "True", "False"],
    "garbage_collection_threshold": ["0.1", "0.5", "0.8", "0.95"],
    "roundup_power2_divisions": ["1", "4", "16", "[256:1,512:2,1024:4,>:8]", "[>:4]", "[1:0,16:4]", "[2:4,1:8]"],
    "large_segment_size_mb": ["11", "16", "20", "32", "64"],
    "max_non_split_rounding_mb": ["64", "100"],
    "expandable_segments_reserve": ["0.001", "0.1", "1.0", "1G", "300M"],
    "per_process_memory_fraction": ["0.3", "0.5", "0.9", "1.0"],
    "throw_on_cudamalloc_oom": ["True", "False"],
}


def settings(r, at_start):
    chosen = [f"{key}:{r.choice(values)}" for key, values in VALUES.items() if r.random() < 0.2]
    # Set at run time, this option makes PyTorch free segments that are in use.
    if at_start and r.random() < 0.3:
        chosen.append(f"max_split_size_mb:{r.choice([64, 100, 200, 500])}")
    r.shuffle(chosen)
    return ",".join(chosen)


def workload(seed):
    r = random.Random(f"workload {seed}")
    devices, total = r.choice([1, 1, 1, 2, 3]), r.choice([GB // 2, GB, 2 * GB, 8 * GB, 24 * GB, 3 * GB + 123 * MB])
    fraction = r.choice([None, None, None, 0.3, 0.8, 0.97])
    w = W(f"random-{seed}", total=total, settings=settings(r, True), devices=devices, fraction=fraction, seed=seed)
    kind = r.random()
    if kind < 0.8:
        random_mix(
            w,
            r.choice([300, 2000, 4000]),
            total * r.choice([0.02, 0.2, 0.6, 0.9, 1.1]),
            streams=r.choice([(0,), (0, 1), (0, 1, 2, 3), tuple(range(r.randrange(1, 20)))]),
            p_record=r.choice([0, 0.05, 0.2]),
            p_empty=r.choice([0, 0.002, 0.02]),
            p_toggle=r.choice([0, 0.01, 0.05]),
            p_stats=0.01,
            p_snap=0.01,
            p_reset=r.choice([0, 0.002, 0.02]),
            big=r.choice([0.2, 1, 3]),
            devices=devices,
            pools=r.choice([0, 3, 6]),
            fractions=r.choice([(), (0.5, 0.9, 1.0), (0.0, 0.2, 1.0, 0.7, 1.5, -1)]),
            settings=[settings(r, False) for _ in range(r.choice([0, 3, 6]))],
        )
    elif kind < 0.87:
        hidden, comm = r.choice([64, 256, 1024]), r.choice([0, 0, 1, 3])
        transformer(w, 3, layers=r.randrange(1, 5), hidden=hidden, comm=comm, ckpt=r.random() < 0.5, max_ops=4000)
    elif kind < 0.94:
        cnn(w, r.randrange(1, 8), batch=r.randrange(1, 33), max_ops=4000)
    else:
        kvcache(w, 80, layers=r.randrange(1, 5), growth=r.choice(["cat", "chunk"]), max_ops=5000)
    return w


def main():
    options = arguments(__doc__, 20)
    same = failed = 0
    for seed in range(options.seed, options.seed + options.count):
        w = workload(seed)
        results = run(options.venv, w.name, w.ops)
        if results is None:
            failed += 1
            continue
        pytorch_results, memtrack_results = results
        if pytorch_results == memtrack_results:
            same += 1
            for suffix in (".workload.jsonl", ".expected.jsonl"):
                os.remove(os.path.join(OUT, w.name + suffix))
        else:
            pairs = enumerate(zip(pytorch_results, memtrack_results))
            first = next((line for line, (a, b) in pairs if a != b), min(len(pytorch_results), len(memtrack_results)))
            print(f"{w.name}: line {first} of {len(pytorch_results)} differs; {w.ops[0]}", flush=True)
    print(f"{same} of {options.count} equal, {failed} that PyTorch rejects or does not survive")
    # If PyTorch never runs, nothing was compared.
    sys.exit(same == 0 or same + failed != options.count)


main()
