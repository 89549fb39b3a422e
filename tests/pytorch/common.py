"""Runs a workload through PyTorch on the simulated runtime and through memtrack, and compares the results."""
import argparse
import json
import os
import subprocess

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
OUT = os.path.join(ROOT, "target", "pytorch")
MEMTRACK = os.path.join(ROOT, "target", "release", "memtrack")
TOOLS = os.path.join(ROOT, "tests", "oracle", "make", "allocator")


def arguments(doc, count):
    parser = argparse.ArgumentParser(description=doc)
    parser.add_argument("venv", help="the environment in which PyTorch is installed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=count)
    return parser.parse_args()


def pytorch(venv, *command, driver="lib"):
    """Runs Python with the simulated runtime instead of CUDA's."""
    environment = dict(
        os.environ,
        LD_LIBRARY_PATH=os.path.join(OUT, driver),
        LD_PRELOAD=os.path.join(OUT, "libsimulated_cuda.so"),
    )
    python = os.path.join(venv, "bin", "python")
    return subprocess.run([python, *command], env=environment, capture_output=True, text=True)


def comparable(line):
    result = json.loads(line)
    # The text of PyTorch's internal assertions has no meaning outside PyTorch.
    if "INTERNAL ASSERT" in result.get("error", ""):
        result["error"] = "fails"
    return result


def run(venv, name, operations):
    """Returns the results of PyTorch and of memtrack, line by line; None if PyTorch fails."""
    path = os.path.join(OUT, name)
    with open(path + ".workload.jsonl", "w") as file:
        file.writelines(json.dumps(operation) + "\n" for operation in operations)
    tool = os.path.join(TOOLS, "run_workload.py")
    pytorch_run = pytorch(venv, tool, path + ".workload.jsonl", path + ".expected.jsonl")
    if pytorch_run.returncode != 0:
        print(f"{name}: PyTorch fails ({pytorch_run.returncode}): {(pytorch_run.stderr.strip().splitlines() or [''])[-1][:160]}")
        return None
    memtrack_run = subprocess.run([MEMTRACK, "simulate", path + ".workload.jsonl"], capture_output=True, text=True)
    if memtrack_run.returncode != 0:
        print(f"{name}: memtrack fails ({memtrack_run.returncode}): {memtrack_run.stderr.strip()}")
        memtrack_run.stdout = ""
    with open(path + ".expected.jsonl") as file:
        return [[comparable(line) for line in lines] for lines in (file, memtrack_run.stdout.splitlines())]
