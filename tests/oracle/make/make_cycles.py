#!/usr/bin/env python3
"""Run the real torch.utils.viz._cycles over object graphs with reference cycles.

    python make_cycles.py OUT [--set stored|more]

CPU tensors count as device tensors (is_cuda_tensor is replaced), the context is a made-up stack
text per tensor.  OUT/NAME/ gets
  input.json    every object before filtering: label, context, root, references [label, index] -
                this is all that filtering and drawing need
  nodes.json    the nodes create_graph() keeps, with their re-numbered references
  graph.dot     to_dot(nodes)
Needs torch.
"""
import argparse
import gc
import json
import os
import types
import weakref

import torch
from torch.utils.viz import _cycles

SKIP = (types.ModuleType, type, types.CodeType, types.BuiltinFunctionType)


def reach(*starts, base=False, extra_skip=()):
    """Returns the objects reachable from starts, breadth first, without modules, types, code, and (unless base) plain values."""
    out, seen, todo = [], set(), list(starts)
    while todo:
        o = todo.pop(0)
        if id(o) in seen or isinstance(o, SKIP) or any(o is s for s in extra_skip) or o is globals() or (isinstance(o, dict) and o.get("__name__") is not None):
            continue
        if isinstance(o, _cycles.BASE_TYPES) and not base:
            continue
        seen.add(id(o))
        out.append(o)
        getattr(o, "__dict__", None)  # creates the dictionary of the attributes, which create_graph visits
        todo.extend(gc.get_referents(o))
    return out


class Thing:
    pass


def self_list():
    a = [torch.zeros(2, 3)]
    a.append(a)
    return reach(a)


def object_dict():
    a, b = Thing(), Thing()
    a.__dict__, b.__dict__
    a.peer, b.peer, a.t, b.note = b, a, torch.ones(4), "text"
    return reach(a)


def closure():
    t = torch.zeros(1)

    def f(n, scale=2.0):
        return f(n - 1) * t if n else scale

    return reach(f)


def bound_method():
    class Hook:
        def __init__(self):
            self.buf = torch.zeros(5, 5)
            self.cb = self.call

        def call(self):
            return self.buf

    return reach(Hook())


def containers():
    t, u = torch.zeros(7), torch.zeros((), dtype=torch.int64)
    th = Thing()
    d = {"plain": t, 'q"uo\'te': [1, 2, 3], ("tuple", 1): (t, u), 5: {1, 2}, None: frozenset((3,)), "\u00e9\n\\": 1.5}
    d["me"] = d
    d["weak"] = weakref.ref(th)
    d["th"] = th
    th.d, th.long = d, list(range(12)) + [t, t]
    th.bytes = b"\x00\xff"
    return reach(d, base=True)


def frames():
    def inner(t):
        local = [t, "local"]
        try:
            raise ValueError("x")
        except ValueError as e:
            local.append(e)
            return local

    r = inner(torch.zeros(3))
    return [r, r[2], r[2].__traceback__, r[2].__traceback__.tb_frame, r[0]]


def no_tensor():
    a = []
    a.append(a)
    b = {"a": a}
    return reach(b)


def ring():
    n = 50
    things = [Thing() for _ in range(n)]
    for i, x in enumerate(things):
        x.__dict__["next"] = things[(i + 1) % n] if i < 30 else things[30 + (i + 1 - 30) % 20]
        if i % 7 == 3 and i < 30:
            x.t = torch.zeros(i + 1)
    junk = [[i] for i in range(10)]
    junk.append(junk)
    return reach(things[0], junk, things[30])


def shared_parts():
    t = torch.zeros(9)
    hub = {"t": t}
    arms = [[hub, t, i] for i in range(6)]
    hub["arms"] = tuple(arms)
    hub["view"] = t.view(3, 3)
    return reach(hub)


def nested_classes():
    class Node:
        __slots__ = ("l", "r", "v", "__weakref__")

    def build(d, up):
        n = Node()
        n.l, n.r, n.v = (build(d - 1, n), build(d - 1, up), None) if d else (up, up, torch.zeros(d + 1))
        return n

    top = Thing()
    top.tree = build(3, top)
    return reach(top)


def dead_weakref():
    th = Thing()
    w = weakref.ref(th, print)
    box = [w, torch.zeros(2, 0), (), {}, set(), w]
    box.append([box, "it's", 'say "x"', "$DOT $LISTENERS {id}", "</script>"])
    del th
    return reach(box, base=True)


def lambdas():
    t = torch.zeros(2)
    d = {}
    d["f"] = lambda a=d, *, k=t: (a, k, t)
    d["g"] = d["f"].__call__
    d["m"] = types.MethodType(d["f"], d)
    return reach(d)


SETS = {"stored": [self_list, object_dict, closure, bound_method, containers, frames, no_tensor, ring],
        "more": [shared_parts, nested_classes, dead_weakref, lambdas]}


def make(name, build, out):
    gc.disable()
    objects = build()
    count = iter(range(10 ** 6))
    ctx = {}

    def context(o):
        if not is_tensor(o):
            return None
        if id(o) not in ctx:
            k = next(count)
            ctx[id(o)] = None if k % 5 == 4 else f"/opt/app/train.py:{10 + k}:forward_{k}\n/opt/app/\u00fc 'q' \"d\".py:{k}:main\n{{id}} $DOT"
        return ctx[id(o)]

    every = _cycles.create_graph(objects, context=context, filter=lambda o: True)
    objects2 = [o for o in objects if not isinstance(o, weakref.ProxyTypes)]
    full = [{"label": n.label, "context": n.context, "root": bool(is_tensor(o)), "references": n.referrents} for n, o in zip(every, objects2)]
    nodes = _cycles.create_graph(objects, context=context, filter=is_tensor)
    d = os.path.join(out, name)
    os.makedirs(d, exist_ok=True)
    dump = lambda fn, v: open(os.path.join(d, fn), "w").write(json.dumps(v, indent=0) + "\n")
    dump("input.json", full)
    dump("nodes.json", [{"label": n.label, "context": n.context, "root": n.root, "references": n.referrents} for n in nodes])
    open(d + "/graph.dot", "w").write(_cycles.to_dot(nodes))
    gc.enable()
    print(f"{name}: {len(full)} objects, {len(nodes)} kept, {sum(n.root for n in nodes)} tensors")


def is_tensor(o):
    return isinstance(o, torch.Tensor)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("out")
    ap.add_argument("--set", default="stored", choices=sorted(SETS))
    a = ap.parse_args()
    _cycles.is_cuda_tensor = is_tensor
    for b in SETS[a.set]:
        make(b.__name__, b, a.out)


if __name__ == "__main__":
    if "REEXEC" not in globals():  # run again under a short file name, so that frames contain no machine path
        g = {"__name__": "__main__", "REEXEC": True, "__file__": "make_cycles.py"}
        exec(compile(open(__file__).read(), "make_cycles.py", "exec"), g)
    else:
        main()
