"""Compares the answer of `memtrack diff` on two PyTorch snapshots with numbers computed from the pickles.

    python3 tests/tests/cli/diff_numbers.py MEMTRACK BEFORE.pickle[.gz] AFTER.pickle[.gz]

Reads both files itself, finds the highest sum of requested bytes and the blocks that were live then, groups them by the
innermost line of Python outside packages, and expects the same totals and the same rows, to the byte. Prints the answer.
"""

import gzip
import json
import pickle
import subprocess
import sys
from collections import defaultdict


class Plain(pickle.Unpickler):
    def find_class(self, module, name):
        raise pickle.UnpicklingError(f"{module}.{name} in a snapshot")


def load(path):
    with gzip.open(path) if path.endswith(".gz") else open(path, "rb") as file:
        return Plain(file).load()


def is_own(frame):
    file = frame["filename"]
    return file.endswith(".py") and not any(part in file for part in ("site-packages/", "dist-packages/", "/lib/python3"))


def line(frames):
    own = next((frame for frame in frames or [] if is_own(frame)), None)
    return own and (own["filename"], own["name"], own["line"])


def frees_carry_allocations(snapshot, device):
    """Returns whether frees carry the stacks of their blocks' allocations: for all blocks with both events in the trace, and
    for at least eight stacks. Otherwise frees have other stacks, or it is unknown."""
    live, same = {}, set()
    for event in snapshot["device_traces"][device]:
        frames = tuple((frame["filename"], frame["name"], frame["line"]) for frame in event.get("frames") or [])
        if event["action"] == "alloc":
            live[event["addr"]] = frames
        elif event["action"] == "free_requested" and live.get(event["addr"]) and frames:
            if live.pop(event["addr"]) != frames:
                return False
            same.add(frames)
    return len(same) >= 8


def lifetimes(snapshot, device):
    """Returns for every block its bytes, its line, and the two events between which it was live."""
    blocks, live = [], {}
    known = frees_carry_allocations(snapshot, device)
    for number, event in enumerate(snapshot["device_traces"][device]):
        if event["action"] == "alloc":
            live[event["addr"]] = len(blocks)
            blocks.append([event["size"], line(event.get("frames")), number, float("inf")])
        elif event["action"] == "free_requested":
            if event["addr"] in live:
                blocks[live.pop(event["addr"])][3] = number
            else:
                # Older than the trace: its line is unknown unless its free carries it.
                blocks.append([event["size"], line(event.get("frames")) if known else None, -1, number])
    for segment in snapshot["segments"]:
        address = segment["address"]
        for block in segment["blocks"]:
            here = block.get("address", address)
            if segment["device"] == device and block["state"] == "active_allocated" and here not in live:
                blocks.append([block["requested_size"], line(block.get("frames")), -1, float("inf")])
            address += block["size"]
    return blocks


def at_peak(snapshot, device):
    """Returns bytes and blocks at the highest moment, in all and by line."""
    blocks = lifetimes(snapshot, device)
    changes = defaultdict(int)
    for size, _, start, end in blocks:
        changes[start] += size
        changes[end] -= size
    now, highest, moment = 0, -1, -1
    for number in sorted(number for number in changes if number != float("inf")):
        now += changes[number]
        if now > highest:
            highest, moment = now, number
    groups = defaultdict(lambda: [0, 0])
    for size, place, start, end in blocks:
        if start <= moment < end:
            groups[place][0] += size
            groups[place][1] += 1
    assert sum(size for size, _ in groups.values()) == highest
    return highest, sum(count for _, count in groups.values()), groups


def main(memtrack, *paths):
    command = [memtrack, "diff", *paths, "--by", "line", "--at", "peak", "--device", "0", "-n", "0", "--json"]
    answer = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    (device,) = answer["devices"]
    before, after = (at_peak(load(path), 0) for path in paths)
    for name, numbers in (("before", before), ("after", after)):
        reported = (device[f"{name}_requested_bytes"], device[f"{name}_count"])
        assert reported == numbers[:2], (name, reported, numbers[:2])
    expected = {}
    for place in set(before[2]) | set(after[2]):
        pair = before[2].get(place, [0, 0]), after[2].get(place, [0, 0])
        if place is not None and pair[0] != pair[1]:
            expected[place] = pair
    found = {}
    for row in device["rows"]:
        own = (row["stack"] or [{}])[0]
        if own.get("file") and is_own({"filename": own["file"]}):
            sides = ([row[f"{side}_requested_bytes"], row[f"{side}_count"]] for side in ("before", "after"))
            found[own["file"], own["function"], own["line"]] = tuple(sides)
    for place in sorted(set(expected) | set(found)):
        assert expected.get(place) == found.get(place), (place, expected.get(place), found.get(place))
    assert sum(row["change_requested_bytes"] for row in device["rows"]) == after[0] - before[0]
    print(f"{len(found)} lines agree; {answer['answer'][0]}")


if __name__ == "__main__":
    main(*sys.argv[1:])
