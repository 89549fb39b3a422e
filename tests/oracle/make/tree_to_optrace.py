#!/usr/bin/env python3
"""Turn a dumped event tree (tree.jsonl.gz of dump_profile.py) into an operator trace,
memtrack-optrace version 1 (docs/FILES.md).

    python3 tree_to_optrace.py DIR...        (DIR = one dumped model; writes DIR/trace.optrace.jsonl.gz)
    python3 tree_to_optrace.py --no-extras --out X.optrace.jsonl TREE.jsonl.gz

Standard library only, no torch. Equal input gives equal bytes. By default allocations carry their Python stack and
PyTorch's ids are added as `x_id` / `x_alloc` (a reader must ignore them, a test may compare them); --no-extras omits both.
"""
import argparse
import gzip
import json
import os
import sys

from export_optrace import Node, Tensor, write_optrace

SCALARS = {"bool": lambda s: s == "True", "int": int, "float": float}


def device(d):
    return d[0] if d[1] is None else f"{d[0]}:{d[1]}"


def tensor(d):
    if d is None:
        return None
    return Tensor(d["impl"], d["ptr"], device(d["device"]), d["dtype"], d["itemsize"], d["sizes"], d["strides"], d["layout"],
                  (d["id"], d["alloc"]))


def op_input(i):
    if i is None:
        return None
    if "tensor" in i:
        return tensor(i["tensor"])
    if "tensors" in i:
        return [tensor(x) for x in i["tensors"]]
    return SCALARS[i["type"]](i["scalar"]) if i.get("type") in SCALARS and "scalar" in i else None


class Owners:
    """The `self` of modules and optimizers. The tree has no object addresses, but the profiler numbers modules per class in the
    event name, attaches equal values to all calls of one object, and assigns tensor ids to the first call only."""

    def __init__(self):
        self.known, self.count = {}, 0

    def __call__(self, key, tensors):
        have = {t.ids[0] is not None for t in tensors if t is not None}
        if len(have) > 1:
            raise ValueError(f"{key[:2]}: some tensors have ids and some have not")
        if key not in self.known and have == {False}:
            raise ValueError(f"{key[:2]}: first call without ids")
        if key not in self.known or have == {True}:  # equal values with new ids: a different object
            self.count += 1
            self.known[key] = hex(self.count)
        return self.known[key]


def describe(t):
    return None if t is None else (t.impl, t.storage)


def nodes_of(lines):
    out, owner = [], Owners()
    for line in lines:
        r = json.loads(line)
        if r["i"] != len(out):
            raise ValueError(f"event {r['i']} out of order")
        kind, more, tag = "skip", {"name": r["name"]}, r["tag"]
        if tag == "TorchOp":
            # `mutable` has one entry per schema argument; a schema only matches if it has as many arguments as there are inputs
            kind = "op"
            more.update(scope=r["scope"], seq=r["seq"], schema=r["schemas"] > 0, inputs=[op_input(i) for i in r["inputs"]], mutable=r["mutable"])
        elif tag == "Allocation":
            a = r["alloc"]
            kind, more = "mem", dict(ptr=a["ptr"], size=a["size"], dev=device(a["device"]), ids=(a["id"], a["alloc"]))
        elif "module" in r:
            m = r["module"]
            params = [(k, tensor(p), tensor(g)) for k, p, g in m["params"]]
            kind = "module"
            more.update(cls=m["cls"], params=params, owner=owner(("module", r["name"]), [t for _, p, g in params for t in (p, g)]))
        elif "optimizer" in r:
            params = [(tensor(p), tensor(g), [(k, tensor(s)) for k, s in st]) for p, g, st in r["optimizer"]["params"]]
            flat = [t for p, g, st in params for t in (p, g, *(s for _, s in st))]
            kind = "optimizer"
            more.update(params=params, owner=owner(("optimizer", r["name"], tuple(map(describe, flat))), flat))
        elif tag in ("PyCall", "PyCCall"):
            kind = "python"
        out.append(Node(kind, r["parent"], r["start"], r["end"], r["tid"], **more))
    return out


def convert(tree, path, version, extras=True):
    with gzip.open(tree, "rt", encoding="utf-8") as f:
        nodes = nodes_of(f)
    producer = {"name": "torch.profiler", "version": version}
    return write_optrace(nodes, path, producer, stacks=extras, with_ids=extras)


def version_of(folder):
    try:
        with open(os.path.join(folder, "info.json")) as f:
            return json.load(f)["torch"]
    except (OSError, KeyError):
        return "unknown"


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--out", help="write here (then exactly one TREE.jsonl.gz)")
    ap.add_argument("--no-extras", action="store_true", help="neither stacks nor x_ fields")
    ap.add_argument("path", nargs="+")
    a = ap.parse_args()
    if a.out and len(a.path) != 1:
        sys.exit("--out takes one tree")
    for p in a.path:
        tree = os.path.join(p, "tree.jsonl.gz") if os.path.isdir(p) else p
        out = a.out or os.path.join(os.path.dirname(tree), "trace.optrace.jsonl.gz")
        n = convert(tree, out, version_of(os.path.dirname(tree)), not a.no_extras)
        print(f"{os.path.basename(os.path.dirname(os.path.abspath(tree)))}: {n} records")
