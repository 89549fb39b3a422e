"""truth.py PROGRAM OUT: runs PROGRAM under tracemalloc; writes the live bytes of each of its lines at its checkpoint, as JSON."""
import builtins
import json
import os
import runpy
import sys
import tracemalloc

program, out = os.path.abspath(sys.argv[1]), sys.argv[2]
sys.path.insert(0, os.path.dirname(program))
import common  # noqa: F401 (before tracing, so that it is attributed to no line of the program)


def own_line(trace):
    """Returns the line of the innermost frame in the program's file."""
    for frame in reversed(trace.traceback):
        if os.path.abspath(frame.filename) == program:
            return frame.lineno
    return None


def write():
    snapshot = tracemalloc.take_snapshot()
    lines = {}
    for trace in snapshot.traces:
        line = own_line(trace)
        if line is not None:
            size, count = lines.get(line, (0, 0))
            lines[line] = (size + trace.size, count + 1)
    with open(out, "w") as file:
        json.dump({str(k): v for k, v in lines.items()}, file)


builtins.memory_checkpoint = write
tracemalloc.start(12)  # the innermost frames
runpy.run_path(program, run_name="__main__")
