"""Operator traces by memtrack's script and PyTorch's own answers about the same profiles, which memtrack must give too.

Runs with the Python of an environment that has PyTorch; `optrace.sh` makes one. For each program of `optrace_models.py`,
OUT/profiles/NAME gets `trace.optrace.jsonl.gz` and what PyTorch's memory profile says: `timeline_cpu.json.gz`,
`raw_cpu.json.gz` and `oracle.json.gz` with the categories, or the error with which it ends. With --memtrack it is asked for the
same (`timeline --compat`, `categories --compat --tensors`). With --times the processor times of both analyses, reading apart,
stand beside one another; memtrack must be a hundred times as fast.
"""
import argparse
import gzip
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import warnings

HERE = os.path.dirname(os.path.abspath(__file__))


def packed(path, text):
    with open(path, "wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as out:
        out.write(text.encode())


def unpacked(path):
    with open(path, "rb") as file:
        data = file.read()
    return json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)


def device(key):
    return [key.device.type, key.device.index]


def theirs(results, folder):
    """What PyTorch says, as files; None or the error, and the processor time in seconds of its analysis alone."""
    from torch.profiler import _memory_profiler as memory

    start = time.process_time()
    try:
        profile = memory.MemoryProfile(results)
        seconds = time.process_time() - start
        timeline = memory.MemoryProfileTimeline(profile)
        for name, write in (("timeline", timeline.export_memory_timeline), ("raw", timeline.export_memory_timeline_raw)):
            with tempfile.NamedTemporaryFile("r", suffix=".json") as file:
                write(file.name, "cpu")
                packed(os.path.join(folder, f"{name}_cpu.json.gz"), file.read())
        categories = [
            [
                {"id": key.id, "ptr": key.storage.ptr, "alloc": key.storage.allocation_id, "device": device(key)},
                version, None if category is None else category.name,
            ]
            for (key, version), category in profile._category_snapshot().items()
        ]
        error = None
    except (ValueError, AssertionError, RuntimeError, KeyError) as failure:
        seconds, categories, error = 0.0, [], f"{type(failure).__name__}: {failure}".splitlines()[0]
    answers = {"categories": categories} if error is None else {"error": error}
    packed(os.path.join(folder, "oracle.json.gz"), json.dumps(answers, separators=(",", ":")))
    return error, seconds


def make(run, export, folder, stacks):
    """Runs a program, and keeps its trace and PyTorch's answers."""
    import torch

    os.makedirs(folder, exist_ok=True)
    trace = os.path.join(folder, "trace.optrace.jsonl.gz")
    torch.manual_seed(1)
    profile = run(lambda *models: export.operator_trace(trace, *models, stacks=stacks))
    return theirs(profile.profiler.kineto_results, folder)


def anonymous(trace):
    """Takes out of a trace on which machine it was made."""
    with gzip.open(trace, "rt") as file:
        header, rest = file.read().split("\n", 1)
    header = {name: value for name, value in json.loads(header).items() if name not in ("host", "pid")}
    packed(trace, json.dumps(header, separators=(",", ":")) + "\n" + rest)


def ours(memtrack, *arguments):
    """memtrack's exit code, standard output and error."""
    result = subprocess.run([memtrack, *arguments], capture_output=True)
    return result.returncode, result.stdout, result.stderr.decode(errors="replace").strip()


def analysis_ms(folders):
    """What the bench says of each trace, in ms of processor time. It goes on with traces of its own, which have no path."""
    traces = [os.path.abspath(os.path.join(folder, "trace.optrace.jsonl.gz")) for folder in folders]
    bench = ["cargo", "bench", "-q", "-p", "memtrack-core", "--features", "profile", "--bench", "profile", "--", *traces]
    said = subprocess.run(bench, check=True, capture_output=True, text=True, cwd=os.path.join(HERE, "../..")).stdout
    return [float(ms) for ms in re.findall(r"^/.*; analysis .*\(middle ([0-9.]+) ms\)", said, re.M)]


def same(our, their):
    """Whether exports are equal. PyTorch 2.1 did not make µs of ns in the coalesced one: not to be compared."""
    in_ns = len(their) == 2 and their[0] and isinstance(their[0][0], int) and their[0][0] > 1 << 53
    return in_ns or our == their


def repaired(memtrack, trace):
    """What is wrong with the answer without --compat, which there must always be, and never with less than no memory."""
    with tempfile.TemporaryDirectory() as work:
        made = os.path.join(work, "made.json")
        code, _, said = ours(memtrack, "timeline", trace, "--device", "cpu", "-o", made)
        if code != 0:
            return [f"without --compat: exit {code}: {said}"]
        least = min((bytes_ for row in unpacked(made)[1] for bytes_ in row), default=0)
    return [] if least >= 0 else [f"without --compat: {least} bytes"]


def differences(memtrack, folder, error):
    """What memtrack answers otherwise than PyTorch, as sentences."""
    trace = os.path.join(folder, "trace.optrace.jsonl.gz")
    found = repaired(memtrack, trace)
    if error is not None:
        code, _, said = ours(memtrack, "categories", trace, "--compat", "--json")
        return found + ([] if code == 3 else [f"PyTorch fails ({error}), memtrack --compat ends with {code}: {said}"])
    with tempfile.TemporaryDirectory() as work:
        for name, suffix in (("timeline", "json"), ("raw", "raw.json.gz")):
            made = os.path.join(work, f"made.{suffix}")
            code, _, said = ours(memtrack, "timeline", trace, "--compat", "--device", "cpu", "-o", made)
            if code != 0:
                found.append(f"{name}: exit {code}: {said}")
            elif not same(unpacked(made), unpacked(os.path.join(folder, f"{name}_cpu.json.gz"))):
                found.append(f"{name}: not the same")
    code, out, said = ours(memtrack, "categories", trace, "--compat", "--tensors", "--json")
    want = [
        {**key, "device": key["device"][0], "version": version, "category": category}
        for key, version, category in unpacked(os.path.join(folder, "oracle.json.gz"))["categories"]
    ]
    got = json.loads(out) if code == 0 else None
    if code != 0:
        found.append(f"categories: exit {code}: {said}")
    elif got != want:
        first = next((i for i, pair in enumerate(zip(got, want)) if pair[0] != pair[1]), min(len(got), len(want)))
        found.append(f"categories: {len(got)} against {len(want)}, first at {first}: {got[first:][:1]} {want[first:][:1]}")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", help="the folder for traces and answers")
    parser.add_argument("--memtrack", help="the command; without it nothing is compared, and the script is the checkout's")
    parser.add_argument("--models", default="optrace_models", help="another module with MODELS, in --path")
    parser.add_argument("--path", default=HERE, help="the folder of that module")
    parser.add_argument("--count", type=int, default=0, help="this many random programs instead; what is equal is not kept")
    parser.add_argument("--seed", type=int, default=1, help="of the first of them")
    parser.add_argument("--times", action="store_true", help="compare the speed of both analyses; needs cargo")
    parser.add_argument("--no-stacks", action="store_true", help="smaller traces")
    parser.add_argument("names", nargs="*", help="only these programs")
    options = parser.parse_intermixed_args()
    sys.path[:0] = [options.path, os.path.join(options.out, "script")]
    os.makedirs(os.path.join(options.out, "script"), exist_ok=True)
    script = os.path.join(options.out, "script", "memtrack_export.py")
    with open(script, "wb") as file:
        if options.memtrack:
            file.write(subprocess.run([options.memtrack, "export-script"], check=True, capture_output=True).stdout)
        else:
            with open(os.path.join(HERE, "../../memtrack-cli/src/export/optrace.py"), "rb") as checkout:
                file.write(checkout.read())
    import torch

    export = importlib.import_module("memtrack_export")
    if options.count:
        models = importlib.import_module("optrace_random").programs(options.seed, options.count)
    else:
        models = importlib.import_module(options.models).MODELS
        models = models.values() if isinstance(models, dict) else models
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    bad, done, failing, timed = 0, 0, 0, []
    for run in models:
        name = run.__name__
        if options.names and name not in options.names:
            continue
        folder = os.path.join(options.out, "profiles", name)
        try:
            error, seconds = make(run, export, folder, not options.no_stacks)
        except (RuntimeError, TypeError) as failure:  # An older PyTorch.
            print(f"{name:20} does not run here: {failure}")
            continue
        anonymous(os.path.join(folder, "trace.optrace.jsonl.gz"))
        found = differences(options.memtrack, folder, error) if options.memtrack else []
        bad, done, failing = bad + bool(found), done + 1, failing + bool(error)
        if options.count and not found:
            shutil.rmtree(folder)
            continue
        told = "fails" if error else "answers"
        print(f"{name:20} PyTorch {told}; {'; '.join(found) or 'memtrack too' if options.memtrack else 'not compared'}")
        if error is None:
            timed.append((name, folder, seconds * 1e3))
    if options.memtrack:
        print(f"{done - bad} of {done} as PyTorch answers, {failing} of them refused by both")
    if options.times:
        for (name, _, theirs_ms), ours_ms in zip(timed, analysis_ms([folder for _, folder, _ in timed])):
            factor = theirs_ms / ours_ms
            bad += factor < 100
            print(f"{name:20} PyTorch {theirs_ms:6.1f} ms, memtrack {ours_ms:6.3f} ms: {factor:.0f} times as fast")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
