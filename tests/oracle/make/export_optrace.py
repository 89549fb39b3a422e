#!/usr/bin/env python3
"""Write an operator trace (memtrack-optrace, version 1) from a finished torch.profiler run.

In a program:

    from export_optrace import export_optrace
    with torch.profiler.profile(record_shapes=True, profile_memory=True, with_stack=True) as prof:
        train_step()
    export_optrace(prof, "step.optrace.jsonl.gz")

or, with a schedule, `on_trace_ready=lambda prof: export_optrace(prof, f"step{prof.step_num}.optrace.jsonl.gz")`.
A whole script, profiled from its first line to its last:

    python export_optrace.py OUT.optrace.jsonl.gz SCRIPT.py [ARGUMENT ...]

The format is described in docs/FILES.md. One file, whose only dependency is torch, and only
for exports: the writer (`write_optrace`) works without it.
"""
import gzip
import io
import json
import math
import re
import sys

FORMAT, VERSION = "memtrack-optrace", 1
# name of an element type in PyTorch -> name in the trace; others are declared by a `dtype` record
DTYPES = {
    "float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16", "float8_e4m3fn": "f8e4m3", "float8_e5m2": "f8e5m2",
    "int64": "i64", "int32": "i32", "int16": "i16", "int8": "i8", "uint64": "u64", "uint32": "u32", "uint16": "u16", "uint8": "u8",
    "bool": "bool", "complex32": "c32", "complex64": "c64", "complex128": "c128",
}
KINDS = {"FUNCTION": "op", "BACKWARD_FUNCTION": "backward", "USER_SCOPE": "user"}
# beginning of an event name -> `phase` of the record (and so of its descendants)
PHASES = {"autograd::engine::evaluate_function: ": "backward", "Optimizer.step#": "optimizer"}
_CALL = re.compile(r"^(.*)\((\d+)\): (.*)$", re.S)


class Tensor:
    """The state of a tensor at one moment. `ids`: PyTorch's (tensor id, allocation id), or None."""

    __slots__ = ("impl", "storage", "dev", "dtype", "itemsize", "sizes", "strides", "layout", "ids")

    def __init__(self, impl, storage, dev, dtype, itemsize, sizes, strides, layout, ids=None):
        self.impl, self.storage, self.dev, self.dtype, self.itemsize = impl, storage, dev, dtype, itemsize
        self.sizes, self.strides, self.layout, self.ids = tuple(sizes), tuple(strides), layout, ids

    def record(self):
        return {"ev": "tensor", "impl": hex(self.impl), "storage": None if self.storage is None else hex(self.storage), "dev": self.dev,
                "dtype": DTYPES.get(self.dtype, self.dtype), "sizes": list(self.sizes),
                "strides": list(self.strides) if self.layout == "strided" else None, "layout": self.layout}


class Node:
    """One event of the profiler's tree. `kind`: op, mem, module, optimizer, python or skip.

    op         name, scope, [overload], [seq], schema (bool), inputs, mutable (one entry per input)
               an input is None, a Tensor, a list of Tensors or a plain scalar
    mem        ptr, size (negative = free), dev, [ids]
    module     name, owner (text), cls, params [(name, Tensor | None, Tensor | None)]
    optimizer  name, owner (text), params [(Tensor | None, Tensor | None, [(name, Tensor)])]
    python     name (any other Python or C call: it occurs only in stacks)
    """

    def __init__(self, kind, parent, start, end, tid, **more):
        self.kind, self.parent, self.start, self.end, self.tid = kind, parent, start, end, tid
        self.overload, self.seq, self.ids, self.call = "", -1, None, None
        self.__dict__.update(more)


def _scalar(v):
    """Returns a scalar in a form that is safe in JSON."""
    if isinstance(v, bool):
        return v
    if isinstance(v, int):
        return v if abs(v) <= 1 << 53 else str(v)
    if isinstance(v, float):
        return v if math.isfinite(v) else str(v)
    return str(v)


def _ids(rec, ids):
    if ids is not None:
        for k, v in zip(("x_id", "x_alloc"), ids):
            if v is not None:
                rec[k] = v
    return rec


def _frame(name):
    m = _CALL.match(name)
    if m:
        return {"file": m.group(1), "line": int(m.group(2)), "name": m.group(3)}
    return {"file": "", "line": 0, "name": name}


class _Writer:
    """A writer that assigns ids and handles in file order, and writes definitions just before their first use."""

    def __init__(self, emit, with_ids):
        self.emit, self.with_ids = emit, with_ids
        self.handles, self.dtypes, self.stacks, self.ids = {}, set(), {}, {}

    def tensor(self, t):
        if t is None:
            return None
        key = (t.impl, t.storage, t.dev, t.dtype, t.sizes, t.strides, t.layout)
        h = self.handles.get(key)
        if h is None:
            if t.dtype not in DTYPES and t.dtype not in self.dtypes:
                self.dtypes.add(t.dtype)
                self.emit({"ev": "dtype", "name": t.dtype, "bytes": t.itemsize})
            h = self.handles[key] = len(self.handles)
            rec = t.record()
            self.emit({"ev": rec.pop("ev"), "t": h, **rec})
        return h

    def stack(self, names):
        s = self.stacks.get(names)
        if s is None:
            s = self.stacks[names] = len(self.stacks)
            self.emit({"ev": "stack", "s": s, "frames": [_frame(n) for n in names]})
        return s

    def argument(self, i, w):
        if i is None:
            return None
        if isinstance(i, Tensor):
            a = {"t": self.tensor(i), "w": w}
            return _ids(a, i.ids) if self.with_ids else a
        if isinstance(i, list):
            a = {"ts": [self.tensor(x) for x in i], "w": w}
            if self.with_ids and any(x.ids for x in i):
                _ids(a, [[(x.ids or (None, None))[k] for x in i] for k in (0, 1)])
            return a
        return {"v": _scalar(i)}

    def begin(self, n, index, parent, frames):
        """Writes the record that opens node n (or the only record of n)."""
        p = None if parent is None else self.ids[parent]
        if n.kind == "mem":
            rec = {"ev": "alloc" if n.size > 0 else "free", "parent": p, "ts": n.start, "thread": n.tid, "dev": n.dev,
                   "ptr": hex(n.ptr), "bytes": abs(n.size)}
            if frames:
                rec["stack"] = self.stack(frames)
            self.emit(_ids(rec, n.ids) if self.with_ids else rec)
            return
        me = self.ids[index] = len(self.ids)
        head = {"ev": n.kind, "id": me, "parent": p, "ts": n.start, "thread": n.tid}
        if n.kind == "op":
            if len(n.inputs) != len(n.mutable):
                raise ValueError(f"{n.name}: {len(n.inputs)} inputs but mutability of {len(n.mutable)}")
            args = [self.argument(i, w) for i, w in zip(n.inputs, n.mutable)]
            head["name"] = n.name
            if n.overload:
                head["overload"] = n.overload
            head.update(kind=KINDS.get(n.scope, "other"), schema=n.schema, args=args)
            if n.seq >= 0:
                head["seq"] = n.seq
            head.update({"phase": p for start, p in PHASES.items() if n.name.startswith(start)})
        elif n.kind == "module":
            head.update({"self": n.owner, "class": n.cls,
                         "params": [{"name": k, "t": self.tensor(p), "grad": self.tensor(g)} for k, p, g in n.params]})
        elif n.kind == "optimizer":
            head.update({"self": n.owner, "params": [{"t": self.tensor(p), "grad": self.tensor(g), "state": [[k, self.tensor(s)] for k, s in st]}
                                                    for p, g, st in n.params]})
        else:  # a Python call that must keep its position, see write_optrace
            head.update(ev="op", name=n.name, kind="other", schema=False, args=[])
        self.emit(head)

    def end(self, index, ts):
        self.emit({"ev": "end", "id": self.ids[index], "ts": ts})


def write_optrace(nodes, path, producer, time="unix_ns", stacks=False, with_ids=False):
    """Write `nodes` (pre-order, parent = index or None) to `path`; gzip if it ends with .gz. Returns the number of records.

    stacks: add the Python ancestors to every alloc, innermost first. with_ids: add PyTorch's own ids as x_id, x_alloc.
    """
    keep, kept_above, calls, dropped = [], [], [], 0
    first_child = {}
    for i, n in enumerate(nodes):
        p = n.parent
        if p is not None and not 0 <= p < i:
            raise ValueError(f"event {i}: its parent {p} does not precede it")
        k = n.kind in ("op", "module", "optimizer") or n.kind == "mem" and n.size != 0
        if not k and p is not None and n.kind != "mem" and p not in first_child:
            # The rule for gradients inspects the first child of this node, so an event that is the first child is kept.
            q = nodes[p]
            k = q.kind == "op" and q.scope == "BACKWARD_FUNCTION" and q.name == "torch::autograd::AccumulateGrad"
        if p is not None:
            first_child.setdefault(p, i)
        keep.append(k)
        kept_above.append(None if p is None else p if keep[p] else kept_above[p])
        own_name = n.name if n.kind in ("module", "optimizer", "python") else None
        above = None if p is None else calls[p]
        calls.append((own_name, above) if own_name is not None else above)

    def frames(c):
        out = []
        while c is not None:
            out.append(c[0])
            c = c[1]
        return tuple(out)

    last = max((n.start for n in nodes), default=0)
    last = max([last] + [n.end for n in nodes if n.end is not None and n.end < 1 << 62])
    moments, open_now = [], []  # (time, index, begins); appended in pre-order, each end after its descendants

    def close():
        j = open_now.pop()
        e = nodes[j].end
        moments.append((last if e is None or e >= 1 << 62 else max(e, nodes[j].start), j, False))

    for i, n in enumerate(nodes):
        if not keep[i]:
            continue
        while open_now and open_now[-1] != kept_above[i]:
            close()
        moments.append((n.start, i, True))
        if n.kind != "mem":
            open_now.append(i)
    while open_now:
        close()
    moments.sort(key=lambda m: m[0])  # stable: equal times keep the order above

    count = [0]
    with open(path, "wb") as raw:
        gz = gzip.GzipFile("", "wb", 9, raw, mtime=0) if str(path).endswith(".gz") else None
        out = io.TextIOWrapper(gz or raw, "utf-8", newline="\n")
        line = lambda rec: out.write(json.dumps(rec, separators=(",", ":"), allow_nan=False) + "\n")

        def emit(rec):
            count[0] += 1
            line(rec)

        devices = sorted({n.dev for n in nodes if n.kind == "mem"})
        line({"ev": "header", "format": FORMAT, "version": VERSION, "time": time, "producer": producer, "devices": devices})
        w = _Writer(emit, with_ids)
        for ts, i, begins in moments:
            if begins:
                with_stack = stacks and nodes[i].kind == "mem" and nodes[i].size > 0
                w.begin(nodes[i], i, kept_above[i], frames(calls[i]) if with_stack else ())
            else:
                w.end(i, ts)
        line({"ev": "footer", "records": count[0]})
        out.flush()
        out.detach()
        if gz:
            gz.close()
    return count[0]


def _nodes_of(results, with_ids):
    """Returns the profiler's event tree as Nodes. Needs torch."""
    from torch._C._profiler import _EventType as Ev
    from torch._C._profiler import _TensorMetadata
    from torch.profiler._memory_profiler import SchemaMatcher

    def tensor(t):
        if t is None:
            return None
        ids = (t.id, t.allocation_id) if with_ids else None
        return Tensor(t.impl_ptr, t.storage_data_ptr, str(t.device), str(t.dtype).replace("torch.", ""), t.dtype.itemsize,
                      t.sizes, t.strides, str(t.layout).replace("torch.", ""), ids)

    def op_input(i):
        if isinstance(i, _TensorMetadata):
            return tensor(i)
        if isinstance(i, list):
            return [tensor(x) for x in i]
        return i if isinstance(i, (bool, int, float)) else None

    nodes = []
    todo = [(e, None) for e in reversed(results.experimental_event_tree())]
    while todo:
        e, parent = todo.pop()
        tag, f = e.typed
        kind, more = "skip", {}
        if tag == Ev.TorchOp:
            schemas = SchemaMatcher.match_schemas(f)
            written = [None] * len(f.inputs)
            if schemas:
                written = [any(getattr(s.arguments[k].alias_info, "is_write", False) for s in schemas) for k in range(len(f.inputs))]
            kind, more = "op", dict(name=e.name, scope=f.scope.name, overload=getattr(e, "overload_name", ""), seq=f.sequence_number,
                                    schema=bool(schemas), inputs=[op_input(i) for i in f.inputs], mutable=written)
        elif tag == Ev.Allocation:
            kind, more = "mem", dict(ptr=f.ptr, size=f.alloc_size, dev=str(f.device), ids=(f.id, f.allocation_id) if with_ids else None)
        elif tag == Ev.PyCall and f.module is not None:
            kind, more = "module", dict(name=e.name, owner=hex(f.module.self_ptr), cls=f.module.cls_name,
                                        params=[(k, tensor(p), tensor(g)) for k, p, g in f.module.parameters])
        elif tag == Ev.PyCall and f.optimizer is not None:
            kind, more = "optimizer", dict(name=e.name, owner=hex(f.optimizer.self_ptr),
                                           params=[(tensor(p), tensor(g), [(k, tensor(s)) for k, s in st]) for p, g, st in f.optimizer.parameters])
        elif tag in (Ev.PyCall, Ev.PyCCall):
            kind, more = "python", dict(name=e.name)
        else:
            more = dict(name=e.name)
        me = len(nodes)
        nodes.append(Node(kind, parent, e.start_time_ns, e.end_time_ns, e.start_tid, **more))
        todo.extend((c, me) for c in reversed(e.children))
    return nodes


def export_optrace(prof, path, stacks=False, with_ids=False):
    """Write the recorded profile `prof` (a torch.profiler.profile that has ended, or inside on_trace_ready) to `path`.

    The profile must have record_shapes and profile_memory; without with_stack, modules and optimizers are not recorded
    and an analysis can find parameters by data flow only. stacks=True adds the Python stack of every allocation
    (with the file names of this machine). with_ids=True adds PyTorch's own ids for comparison. Returns the number of records.
    """
    import warnings

    import torch

    missing = [f"{o}=True" for o in ("record_shapes", "profile_memory") if not getattr(prof, o, True)]
    if missing:
        raise ValueError(", ".join(missing) + " required for an operator trace.")
    if not getattr(prof, "with_stack", True):
        warnings.warn("with_stack=True was not set: the trace has no modules and optimizers")
    results = getattr(getattr(prof, "profiler", prof), "kineto_results", None)
    if results is None:
        raise ValueError("the profile has no results yet: export after it has ended")
    nodes = _nodes_of(results, with_ids)
    return write_optrace(nodes, path, {"name": "torch.profiler", "version": str(torch.__version__)}, stacks=stacks, with_ids=with_ids)


def _main(argv):
    if len(argv) < 2 or argv[0].startswith("-"):
        print("usage: export_optrace.py OUT.optrace.jsonl[.gz] SCRIPT.py [ARGUMENT ...]", file=sys.stderr)
        return 2
    import os
    import runpy

    import torch

    out, script = argv[0], argv[1]
    sys.argv = argv[1:]
    sys.path.insert(0, os.path.dirname(os.path.abspath(script)))
    code = 0
    with torch.profiler.profile(record_shapes=True, profile_memory=True, with_stack=True) as prof:
        try:
            runpy.run_path(script, run_name="__main__")
        except SystemExit as e:  # the trace is still written
            code = e.code
    print(f"{export_optrace(prof, out)} records written to {out}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
