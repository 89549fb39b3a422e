"""Compares memtrack's analysis of operator traces, recorded by its script, with PyTorch's analysis of the same profiles.

Runs with the Python of an environment that has PyTorch; `optrace.sh` creates one. For each program of `optrace_models.py`,
OUT/profiles/NAME gets `trace.optrace.jsonl.gz` and the output of PyTorch's memory profile: `timeline_cpu.json.gz`,
`raw_cpu.json.gz` and `oracle.json.gz` with the categories, or the error with which it ends. With --memtrack, memtrack must print
the same (`timeline --compat`, `categories --compat --tensors`). With --times, prints the processor times of both analyses,
without reading; memtrack must be a hundred times as fast.
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


def pytorch_analysis(results, folder):
    """Writes PyTorch's analysis; returns None or the error, and the processor seconds of the analysis alone."""
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
    """Runs a program, and writes its trace and PyTorch's analysis."""
    import torch

    os.makedirs(folder, exist_ok=True)
    trace = os.path.join(folder, "trace.optrace.jsonl.gz")
    torch.manual_seed(1)
    profile = run(lambda *models: export.operator_trace(trace, *models, stacks=stacks))
    return pytorch_analysis(profile.profiler.kineto_results, folder)


def anonymous(trace):
    """Removes the machine and the process from a trace."""
    with gzip.open(trace, "rt") as file:
        header, rest = file.read().split("\n", 1)
    header = {name: value for name, value in json.loads(header).items() if name not in ("host", "pid")}
    packed(trace, json.dumps(header, separators=(",", ":")) + "\n" + rest)


def run_memtrack(memtrack, *arguments):
    """Runs memtrack; returns its exit code, standard output and error."""
    result = subprocess.run([memtrack, *arguments], capture_output=True)
    return result.returncode, result.stdout, result.stderr.decode(errors="replace").strip()


def analysis_ms(folders):
    """Returns the bench's time of each trace, in ms of processor time. It also prints generated traces, which have no path."""
    traces = [os.path.abspath(os.path.join(folder, "trace.optrace.jsonl.gz")) for folder in folders]
    bench = ["cargo", "bench", "-q", "-p", "memtrack-core", "--features", "profile", "--bench", "profile", "--", *traces]
    output = subprocess.run(bench, check=True, capture_output=True, text=True, cwd=os.path.join(HERE, "../..")).stdout
    return [float(ms) for ms in re.findall(r"^/.*; analysis .*\(middle ([0-9.]+) ms\)", output, re.M)]


def same(export, reference):
    """Returns whether exports are equal. PyTorch 2.1's coalesced export is not compared, because it has ns instead of µs."""
    in_ns = len(reference) == 2 and reference[0] and isinstance(reference[0][0], int) and reference[0][0] > 1 << 53
    return in_ns or export == reference


def repaired(memtrack, trace):
    """Returns the errors of the analysis without --compat, which must always succeed and have no negative sizes."""
    with tempfile.TemporaryDirectory() as work:
        export = os.path.join(work, "export.json")
        code, _, error = run_memtrack(memtrack, "timeline", trace, "--device", "cpu", "-o", export)
        if code != 0:
            return [f"without --compat: exit {code}: {error}"]
        least = min((bytes_ for row in unpacked(export)[1] for bytes_ in row), default=0)
    return [] if least >= 0 else [f"without --compat: {least} bytes"]


def differences(memtrack, folder, pytorch_error):
    """Returns the differences between memtrack and PyTorch, as sentences."""
    trace = os.path.join(folder, "trace.optrace.jsonl.gz")
    found = repaired(memtrack, trace)
    if pytorch_error is not None:
        code, _, error = run_memtrack(memtrack, "categories", trace, "--compat", "--json")
        return found + ([] if code == 3 else [f"PyTorch fails ({pytorch_error}), memtrack --compat ends with {code}: {error}"])
    with tempfile.TemporaryDirectory() as work:
        for name, suffix in (("timeline", "json"), ("raw", "raw.json.gz")):
            export = os.path.join(work, f"export.{suffix}")
            code, _, error = run_memtrack(memtrack, "timeline", trace, "--compat", "--device", "cpu", "-o", export)
            if code != 0:
                found.append(f"{name}: exit {code}: {error}")
            elif not same(unpacked(export), unpacked(os.path.join(folder, f"{name}_cpu.json.gz"))):
                found.append(f"{name}: not the same")
    code, out, error = run_memtrack(memtrack, "categories", trace, "--compat", "--tensors", "--json")
    expected = [
        {**key, "device": key["device"][0], "version": version, "category": category}
        for key, version, category in unpacked(os.path.join(folder, "oracle.json.gz"))["categories"]
    ]
    got = json.loads(out) if code == 0 else None
    if code != 0:
        found.append(f"categories: exit {code}: {error}")
    elif got != expected:
        first = next((i for i, pair in enumerate(zip(got, expected)) if pair[0] != pair[1]), min(len(got), len(expected)))
        found.append(f"categories: {len(got)} against {len(expected)}, first at {first}: {got[first:][:1]} {expected[first:][:1]}")
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", help="the folder for traces and answers")
    parser.add_argument("--memtrack", help="the command; without it nothing is compared, and the script is the checkout's")
    parser.add_argument("--models", default="optrace_models", help="another module with MODELS, in --path")
    parser.add_argument("--path", default=HERE, help="the folder of that module")
    parser.add_argument("--count", type=int, default=0, help="this many random programs instead; equal ones are not kept")
    parser.add_argument("--seed", type=int, default=1, help="the seed of the first of them")
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
        outcome = "fails" if error else "succeeds"
        print(f"{name:20} PyTorch {outcome}; {'; '.join(found) or 'memtrack too' if options.memtrack else 'not compared'}")
        if error is None:
            timed.append((name, folder, seconds * 1e3))
    if options.memtrack:
        print(f"{done - bad} of {done} agree with PyTorch; on {failing} both fail")
    if options.times:
        for (name, _, pytorch_ms), memtrack_ms in zip(timed, analysis_ms([folder for _, folder, _ in timed])):
            factor = pytorch_ms / memtrack_ms
            bad += factor < 100
            print(f"{name:20} PyTorch {pytorch_ms:6.1f} ms, memtrack {memtrack_ms:6.3f} ms: {factor:.0f} times as fast")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
