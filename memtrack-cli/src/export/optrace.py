#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Writes operator traces from PyTorch: the records of `torch.profiler`, in a file that `memtrack timeline` and `memtrack
categories` read. This is a single file that needs nothing but PyTorch (2.1 or newer) and Python's standard library (3.8
or newer); `memtrack export-script` prints it.

To trace a whole script without changing it. The profiler keeps every event until the end, so the run should be short:

    memtrack export-script -o memtrack_export.py
    python memtrack_export.py run.optrace.jsonl.gz train.py --epochs 1
    memtrack timeline run.optrace.jsonl.gz -o memory.html

To trace a part of a program. The trace is also written if that part fails, for example out of memory:

    import memtrack_export
    with memtrack_export.operator_trace("step.optrace.jsonl.gz", model):
        train_step()

To export a profile that a program creates itself, with these three options, after it has ended or in `on_trace_ready`:

    with torch.profiler.profile(record_shapes=True, profile_memory=True, with_stack=True) as prof:
        train_step()
    memtrack_export.export_operator_trace(prof, "step.optrace.jsonl.gz", model)

The model is optional, and determines the paths of modules. Without it, the third way records only the class of a
module, and the other ways its path below the outermost module that was called. Only the first two ways record buffers.

A file whose name ends with .gz is compressed. The file appears when it is complete, and replaces an existing file, except
when this script runs as a command without --force. It contains the machine's name, names of functions and files, and
numbers that operators were called with, but no contents of tensors.
"""
import argparse
import contextlib
import gzip
import heapq
import io
import json
import math
import os
import re
import runpy
import socket
import sys
import warnings

FORMAT, VERSION = "memtrack-optrace", 1
OPTIONS = {"record_shapes": True, "profile_memory": True, "with_stack": True}

# PyTorch's names of element types -> the names in traces. A trace declares each other type before its first use.
DTYPES = {
    "float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16", "float8_e4m3fn": "f8e4m3",
    "float8_e5m2": "f8e5m2", "int64": "i64", "int32": "i32", "int16": "i16", "int8": "i8", "uint64": "u64",
    "uint32": "u32", "uint16": "u16", "uint8": "u8", "bool": "bool", "complex32": "c32", "complex64": "c64",
    "complex128": "c128",
}
# The profiler's scopes of an operator -> the kinds in traces. All other scopes are "other".
KINDS = {"FUNCTION": "op", "BACKWARD_FUNCTION": "backward", "USER_SCOPE": "user"}
BACKWARD = "autograd::engine::evaluate_function: "
OPTIMIZER = "Optimizer.step#"
ACCUMULATE_GRAD = "torch::autograd::AccumulateGrad"
# The maximum number of remembered tensors, and of remembered stacks. Forgotten ones are written again.
MAX_REMEMBERED = 1 << 18
# A call that had not ended has an end time near the maximum of the integer type.
NOT_ENDED = 1 << 62

_CALL = re.compile(r"(.*)\((\d+)\): (.*)", re.S)
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def export_operator_trace(prof, path, model=None, stacks=True):
    """Writes the trace of a profile to `path`, and returns the number of records.

    prof: a `torch.profiler.profile` that has ended, or the argument of `on_trace_ready`.
    model: the `torch.nn.Module` that ran, which determines the paths of modules, or the `Modules` that observed it.
    stacks: whether to write the stacks of allocations and operators.

    Raises ValueError if the profile lacks shapes or memory, or is empty, and OSError if the file cannot be written.
    """
    results = _results(prof)
    modules = model if isinstance(model, Modules) else Modules(*([] if model is None else [model]))
    roots = results.experimental_event_tree()
    devices = _devices(roots)
    if not devices:
        raise ValueError("the profile has no allocations: nothing was allocated in it, or on threads that it does not see")
    with _replacing_file(path) as out:
        return _Writer(out, modules, stacks).write(roots, devices)


@contextlib.contextmanager
def operator_trace(path, *models, stacks=True):
    """Profiles the body of a `with` statement, and writes the trace to `path`, even if the body raises an exception."""
    import torch

    modules = Modules(*models)
    prof = torch.profiler.profile(**OPTIONS)
    try:
        with modules, prof:
            yield prof
    except BaseException:
        try:
            export_operator_trace(prof, path, modules, stacks)
        except Exception as second:  # The first exception must be raised, not this one.
            warnings.warn(f"no operator trace of what failed: {second}")
        raise
    export_operator_trace(prof, path, modules, stacks)


class Modules:
    """The paths of modules in their models. Inside `with`, it also records other modules when they are first called, and
    the buffers of modules at that moment, when the profiler records their parameters.
    """

    def __init__(self, *models):
        # Both are keyed by the module's address. The class distinguishes a module from a later one at the same address.
        self._paths = {}
        self._buffers = {}
        self._hook = None
        for model in models:
            self._add_model(model)

    def __enter__(self):
        from torch.nn.modules.module import register_module_forward_pre_hook

        self._hook = register_module_forward_pre_hook(self._called)
        return self

    def __exit__(self, *_):
        self._hook.remove()

    def path(self, address, class_address):
        """Returns the module's name in its model: empty for a model itself, and for an unknown module."""
        path, of_class = self._paths.get(address, ("", class_address))
        return path if of_class == class_address else ""

    def buffers(self, address, class_address):
        """Returns the module's own buffers at its first call, as names and _Tensor."""
        buffers, of_class = self._buffers.get(address, ((), class_address))
        return buffers if of_class == class_address else ()

    def _add_model(self, model):
        for path, module in model.named_modules():
            self._paths.setdefault(id(module), (path, id(type(module))))

    def _called(self, module, _inputs):
        # A module's attributes may raise any exception. The program must not be affected.
        with contextlib.suppress(Exception):
            if id(module) not in self._paths:
                self._add_model(module)
            if id(module) not in self._buffers:
                self._buffers[id(module)] = (_buffers(module), id(type(module)))


def _results(prof):
    """Returns the profiler's results, after checking that they suffice."""
    missing = [name for name in OPTIONS if not getattr(prof, name, True)]
    wanted = ", ".join(f"{name}=True" for name in OPTIONS)
    if "record_shapes" in missing or "profile_memory" in missing:
        lacking = ", ".join(f"{name}=True" for name in missing)
        raise ValueError(f"the profile was made without {lacking}: make it with torch.profiler.profile({wanted})")
    if missing:
        warnings.warn("the profile was made without with_stack=True: the trace has no modules, optimizers and stacks")
    results = getattr(getattr(prof, "profiler", prof), "kineto_results", None)
    if results is None:
        raise ValueError("the profile has no results yet: export it after it has ended, or in on_trace_ready")
    if not hasattr(results, "experimental_event_tree"):
        raise ValueError("this version of PyTorch does not give out its events: version 2.1 or newer is needed")
    return results


def _devices(roots):
    """Returns the names of the devices on which memory was allocated or freed."""
    devices, todo = set(), [iter(roots)]
    while todo:
        event = next(todo[-1], None)
        if event is None:
            todo.pop()
            continue
        kind, fields = event.typed
        if kind.name == "Allocation" and fields.alloc_size != 0:
            devices.add(fields.device)
        else:
            todo.append(iter(event.children))
    return sorted(str(device) for device in devices)


@contextlib.contextmanager
def _replacing_file(path):
    """Opens a text file that appears under its name when it is complete, and not at all if writing fails."""
    path = os.fspath(path)
    part = f"{path}.{os.getpid()}.part"
    raw = open(part, "xb")
    try:
        with raw:
            packed = gzip.GzipFile("", "wb", 6, raw, mtime=0) if path.endswith(".gz") else None
            with io.TextIOWrapper(packed or raw, "utf-8", newline="\n") as out:
                yield out
        os.replace(part, path)
    except BaseException:
        os.unlink(part)
        raise


class _Tensor:
    """The properties of a tensor at one moment."""

    __slots__ = ("key", "bytes_per_element")

    def __init__(self, impl, storage, device, dtype, sizes, strides, layout):
        # Tensors with equal keys have the same `tensor` record.
        strides = tuple(strides) if layout == "strided" else None
        name = str(dtype).replace("torch.", "")
        self.key = (impl, storage, str(device), DTYPES.get(name, name), tuple(sizes), strides, layout)
        self.bytes_per_element = dtype.itemsize

    @classmethod
    def recorded(cls, seen):
        """Creates a tensor from the profiler's description."""
        layout = str(seen.layout).replace("torch.", "")
        return cls(seen.impl_ptr, seen.storage_data_ptr, seen.device, seen.dtype, seen.sizes, seen.strides, layout)

    def record(self, number):
        impl, storage, device, dtype, sizes, strides, layout = self.key
        return {
            "ev": "tensor", "t": number, "impl": hex(impl), "storage": None if storage is None else hex(storage),
            "dev": device, "dtype": dtype, "sizes": sizes, "strides": strides, "layout": layout,
        }


def _buffers(module):
    """Returns a module's own buffers. The program must not be affected, so a tensor that raises an exception is left out."""
    import torch

    buffers = []
    for name, tensor in getattr(module, "_buffers", {}).items():
        # The profiler also skips such parameters: tensors of other classes may consist of several tensors.
        if type(tensor) is not torch.Tensor or tensor.layout is not torch.strided:
            continue
        with contextlib.suppress(RuntimeError, NotImplementedError):
            storage = tensor.untyped_storage().data_ptr() or None
            facts = (tensor.device, tensor.dtype, tensor.shape, tensor.stride(), "strided")
            buffers.append((name, _Tensor(tensor._cdata, storage, *facts)))
    return buffers


def _is_tensor(value):
    return hasattr(value, "impl_ptr")


def _is_identified(value):
    """Returns whether the profiler has assigned ids to the tensor."""
    return _is_tensor(value) and None not in (value.id, value.storage_data_ptr, value.allocation_id)


class _Schemas:
    """Finds which arguments an operator writes, from PyTorch's registry.

    The profile contains neither the overload nor which arguments are written. So all schemas of that name that accept
    the arguments count, and an argument is written if any of those schemas writes it. This is the rule of PyTorch's own
    memory profile.
    """

    # The type of an argument -> a function that returns whether it accepts a value.
    ACCEPTS = {
        "AnyType": lambda value: True,
        "TensorType": _is_tensor,
        "NoneType": lambda value: value is None,
        "BoolType": lambda value: isinstance(value, bool),
        "IntType": lambda value: isinstance(value, int),
        "FloatType": lambda value: isinstance(value, float),
        "ComplexType": lambda value: isinstance(value, complex),
        "NumberType": lambda value: isinstance(value, (bool, int, float, complex)),
    }

    def __init__(self):
        self._of = {}

    def written(self, name, inputs):
        """Returns for each input whether the operator writes it; None if no schema accepts the inputs."""
        schemas = self._of.get(name)
        if schemas is None:
            schemas = self._of[name] = self._schemas(name)
        # In PyTorch's rule, a tensor that has no ids because it has no memory counts as a missing argument.
        values = [None if _is_tensor(value) and not _is_identified(value) else value for value in inputs]
        found = [
            writes for accepts, writes in schemas
            if len(accepts) == len(values) and all(accept(value) for accept, value in zip(accepts, values))
        ]
        return [any(writes) for writes in zip(*found)] if found else None

    def _schemas(self, name):
        """Returns for each schema of an operator which values its arguments accept, and whether the arguments are written."""
        import torch

        if "::" not in name:
            return []
        try:
            schemas = torch._C._jit_get_schemas_for_operator(name)
        except RuntimeError:
            return []
        return [
            (
                [self._accepts(argument.type) for argument in schema.arguments],
                [bool(getattr(argument.alias_info, "is_write", False)) for argument in schema.arguments],
            )
            for schema in schemas
        ]

    def _accepts(self, type_):
        kind = type_.kind()
        if kind == "OptionalType":
            inner = self._accepts(type_.getElementType())
            return lambda value: value is None or inner(value)
        if kind == "ListType" and type_.getElementType().kind() == "TensorType":
            return lambda value: isinstance(value, list) and all(_is_identified(item) for item in value)
        # The profiler does not record lists of numbers, strings and devices.
        return self.ACCEPTS.get(kind, self.ACCEPTS["NoneType"])


class _Call:
    """A call of a Python or C function, and its caller."""

    __slots__ = ("name", "caller", "stack")

    def __init__(self, name, caller):
        self.name, self.caller, self.stack = name, caller, None


def _by_time(events):
    """Returns an iterator over events by start time: with a GPU, PyTorch lists CUDA calls before an operator's other children."""
    return iter(sorted(events, key=lambda event: event.start_time_ns))


class _EventContext:
    """The context of the events inside an event."""

    __slots__ = ("record", "calls", "phase", "in_operator", "first_must_stay")

    def __init__(self, record=None, calls=None, phase=None, in_operator=False):
        self.record, self.calls, self.phase, self.in_operator = record, calls, phase, in_operator
        self.first_must_stay = False


class _Writer:
    """Writes records in chronological order, each definition before its first use.

    Only open events are kept in memory, besides the profiler's results.
    """

    def __init__(self, out, modules, stacks):
        self._out, self._modules, self._with_stacks = out, modules, stacks
        self._encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False, check_circular=False).encode
        self._schemas = _Schemas()
        self._lines = self._next_id = self._next_tensor = self._next_stack = 0
        self._tensors, self._stacks, self._declared = {}, {}, set()
        # The open optimizer steps of each thread: the optimizer's class, and the end of the step.
        self._steps = {}

    def write(self, roots, devices):
        """Writes everything, and returns the number of records."""
        self._line(_header(devices))
        self._lines = 0
        latest = self._events(roots)
        for record in reversed(self._unfinished):
            self._line({"ev": "end", "id": record, "ts": latest})
        records = self._lines
        self._line({"ev": "footer", "records": records})
        return records

    def _line(self, record):
        self._out.write(self._encode(record))
        self._out.write("\n")
        self._lines += 1

    def _events(self, roots):
        """Writes all events, and returns the time of the last."""
        # Entries are (time, order, event or record, its siblings or None for an end, the enclosing context). Of entries with
        # equal times the newest comes first, so that an event is followed by the events inside it, its end, and its sibling.
        heap, self._unfinished = [], []
        order = latest = 0

        def push(time, what, siblings, enclosing):
            nonlocal order
            order -= 1
            heapq.heappush(heap, (time, order, what, siblings, enclosing))

        def push_next(siblings, enclosing):
            event = next(siblings, None)
            if event is not None:
                push(event.start_time_ns, event, siblings, enclosing)

        push_next(_by_time(roots), _EventContext())
        while heap:
            time, _, event, siblings, enclosing = heapq.heappop(heap)
            latest = max(latest, time)
            if siblings is None:
                self._line({"ev": "end", "id": event, "ts": latest})
                continue
            push_next(siblings, enclosing)
            inner = self._begin(event, latest, enclosing)
            if inner is None:
                continue
            if inner.record is not enclosing.record:
                end = _end(event)
                if end >= NOT_ENDED:
                    self._unfinished.append(inner.record)
                else:
                    push(max(end, latest), inner.record, None, None)
            # PyTorch treats the first child in its list as the gradient.
            push_next(iter(event.children) if inner.first_must_stay else _by_time(event.children), inner)
        return latest

    def _begin(self, event, time, enclosing):
        """Writes an event, or omits it. Returns the context of the events inside it, or None if it cannot have any."""
        kind, fields = event.typed
        must_stay, enclosing.first_must_stay = enclosing.first_must_stay, False
        if kind.name == "Allocation":
            self._memory(event, fields, time, enclosing)
            return None
        if kind.name == "TorchOp":
            return self._operator(event, fields, time, enclosing)
        calls = _Call(event.name, enclosing.calls) if kind.name in ("PyCall", "PyCCall") else enclosing.calls
        inner = _EventContext(enclosing.record, calls, enclosing.phase, enclosing.in_operator)
        if kind.name == "PyCall" and fields.module is not None:
            # A closure that is passed to an optimizer's step may call the model.
            phase = self._phase(event, time, enclosing)
            inner.phase = "forward" if phase == "optimizer" else phase
            inner.record = self._module(event, fields.module, time, enclosing, inner.phase)
        elif kind.name == "PyCall" and fields.optimizer is not None:
            inner.record = self._optimizer(event, fields.optimizer, time, enclosing)
        elif must_stay:
            # If this event were omitted, the next event would come first, and be treated as the gradient.
            more = {"name": event.name, "kind": "other", "schema": False, "args": []}
            inner.record = self._open("op", event, time, enclosing, more)
        return inner

    def _open(self, ev, event, time, enclosing, fields):
        """Writes the beginning of a record that has an end, and returns its id."""
        record, self._next_id = self._next_id, self._next_id + 1
        self._line({"ev": ev, "id": record, "parent": enclosing.record, "ts": time, "thread": event.start_tid, **fields})
        return record

    def _step(self, event, time):
        """Returns the class of the optimizer whose step is open in this thread, or None.

        This is determined by time, because the Python call that creates the step's annotation ends at once, and with stacks
        the profiler puts no events inside an event whose caller has ended.
        """
        steps = self._steps.get(event.start_tid, [])
        while steps and steps[-1][1] < time:
            steps.pop()
        return steps[-1][0] if steps else None

    def _phase(self, event, time, enclosing):
        """Returns the phase of an event that does not define one itself."""
        return "optimizer" if enclosing.phase is None and self._step(event, time) is not None else enclosing.phase

    def _memory(self, event, fields, time, enclosing):
        size = fields.alloc_size
        if size == 0:
            return
        record = {
            "ev": "alloc" if size > 0 else "free", "parent": enclosing.record, "ts": time, "thread": event.start_tid,
            "dev": str(fields.device), "ptr": hex(fields.ptr), "bytes": abs(size),
        }
        phase = self._phase(event, time, enclosing)
        if phase != enclosing.phase:
            record["phase"] = phase
        if size > 0:
            record.update(self._stack(enclosing.calls))
        self._line(record)

    def _operator(self, event, fields, time, enclosing):
        name, scope = event.name, fields.scope.name
        written = self._schemas.written(name, fields.inputs)
        writes = written or [None] * len(fields.inputs)
        more = {"name": name}
        if getattr(fields, "overload_name", ""):
            more["overload"] = fields.overload_name
        more["kind"] = KINDS.get(scope, "other")
        more["schema"] = written is not None
        more["args"] = [self._argument(value, write) for value, write in zip(fields.inputs, writes)]
        if fields.sequence_number >= 0:
            more["seq"] = fields.sequence_number
        phase = self._phase(event, time, enclosing)
        if name.startswith(BACKWARD):
            phase = "backward"
        elif name.startswith(OPTIMIZER) and name.endswith(".step"):
            phase = "optimizer"
            self._steps.setdefault(event.start_tid, []).append((name[len(OPTIMIZER):-len(".step")], _end(event)))
        if phase != enclosing.phase:
            more["phase"] = phase
        if not enclosing.in_operator:
            more.update(self._stack(enclosing.calls))
        record = self._open("op", event, time, enclosing, more)
        # Annotations have stacks, and so do the operators inside them.
        inner = _EventContext(record, enclosing.calls, phase, enclosing.in_operator or scope != "USER_SCOPE")
        inner.first_must_stay = scope == "BACKWARD_FUNCTION" and name == ACCUMULATE_GRAD
        return inner

    def _module(self, event, module, time, enclosing, phase):
        more = {"self": hex(module.self_ptr), "class": module.cls_name}
        path = self._modules.path(module.self_ptr, module.cls_ptr)
        if path:
            more["path"] = path
        more["params"] = [
            {"name": name, "t": self._tensor(tensor), "grad": self._tensor(grad)}
            for name, tensor, grad in module.parameters
        ]
        buffers = self._modules.buffers(module.self_ptr, module.cls_ptr)
        if buffers:
            more["buffers"] = [{"name": name, "t": self._handle(tensor)} for name, tensor in buffers]
        if phase != enclosing.phase:
            more["phase"] = phase
        return self._open("module", event, time, enclosing, more)

    def _optimizer(self, event, optimizer, time, enclosing):
        more = {"self": hex(optimizer.self_ptr)}
        step = self._step(event, time)
        if step is not None:
            more["class"] = step
        more["params"] = [
            {
                "t": self._tensor(tensor), "grad": self._tensor(grad),
                "state": [[name, self._tensor(held)] for name, held in state],
            }
            for tensor, grad, state in optimizer.parameters
        ]
        return self._open("optimizer", event, time, enclosing, more)

    def _argument(self, value, write):
        if _is_tensor(value):
            return {"t": self._tensor(value), "w": write}
        if isinstance(value, list):
            # PyTorch does not record lists of other values, or only some versions do.
            return {"ts": [self._tensor(item) for item in value], "w": write} if all(map(_is_tensor, value)) else None
        if isinstance(value, (bool, int, float, complex)):
            return {"v": _scalar(value)}
        return None

    def _tensor(self, seen):
        """Returns the number of a tensor that the profiler recorded."""
        return None if seen is None else self._handle(_Tensor.recorded(seen))

    def _handle(self, tensor):
        number = self._tensors.get(tensor.key)
        if number is None:
            dtype = tensor.key[3]
            if dtype not in DTYPES.values() and dtype not in self._declared:
                self._declared.add(dtype)
                self._line({"ev": "dtype", "name": dtype, "bytes": tensor.bytes_per_element})
            number, self._next_tensor = self._next_tensor, self._next_tensor + 1
            self._line(tensor.record(number))
            _remember(self._tensors, tensor.key, number)
        return number

    def _stack(self, calls):
        """Returns the field for a stack; empty if there is no stack to write."""
        if calls is None or not self._with_stacks:
            return {}
        if calls.stack is None:
            names, call = [], calls
            while call is not None:
                names.append(_ADDRESS.sub("", call.name))
                call = call.caller
            names = tuple(names)
            calls.stack = self._stacks.get(names)
            if calls.stack is None:
                calls.stack, self._next_stack = self._next_stack, self._next_stack + 1
                self._line({"ev": "stack", "s": calls.stack, "frames": [_frame(name) for name in names]})
                _remember(self._stacks, names, calls.stack)
        return {"stack": calls.stack}


def _end(event):
    """Returns the time at which an event ended, or NOT_ENDED."""
    end = event.end_time_ns
    return NOT_ENDED if end is None else min(end, NOT_ENDED)


def _remember(known, key, number):
    """Remembers a number; if too many are remembered, the others are forgotten."""
    if len(known) >= MAX_REMEMBERED:
        known.clear()
    known[key] = number


def _header(devices):
    import torch

    header = {
        "ev": "header", "format": FORMAT, "version": VERSION, "time": "unix_ns",
        "producer": {"name": "torch.profiler", "version": str(torch.__version__)},
        "pid": os.getpid(), "host": socket.gethostname(),
    }
    distributed = getattr(torch, "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        header["rank"] = distributed.get_rank()
    return {**header, "devices": devices}


def _scalar(value):
    """Returns a number in a form that every JSON reader can represent: as a string if it is not finite or too large."""
    exact = isinstance(value, float) and math.isfinite(value) or isinstance(value, int) and abs(value) <= 1 << 53
    return value if exact else str(value)


def _frame(name):
    """Parses a frame from `file(line): function`; other names have no file."""
    call = _CALL.fullmatch(name)
    if call is None:
        return {"file": "", "line": 0, "name": name}
    return {"file": call.group(1), "line": int(call.group(2)), "name": call.group(3)}


def main(arguments):
    """Runs the command: profiles a script from start to end. Returns the script's exit code."""
    parser = argparse.ArgumentParser(
        description="Runs a Python script under torch.profiler and writes what it did as an operator trace.",
        epilog="Then: memtrack timeline OUT -o memory.html, or memtrack categories OUT.",
    )
    parser.add_argument("--force", action="store_true", help="replace OUT if it exists")
    parser.add_argument("--no-stacks", action="store_true", help="leave out where memory was allocated: a smaller file")
    parser.add_argument("out", metavar="OUT", help="the trace, usually called NAME.optrace.jsonl.gz")
    parser.add_argument("script", metavar="SCRIPT", help="the Python script")
    parser.add_argument("arguments", metavar="ARGUMENT", nargs=argparse.REMAINDER, help="what the script is called with")
    options = parser.parse_args(arguments)
    if os.path.lexists(options.out) and not options.force:
        parser.error(f"{options.out} exists: add --force to replace it, or choose another name")
    if not os.path.isfile(options.script):
        parser.error(f"{options.script}: no such file")
    # The script may change the current folder.
    out = os.path.abspath(options.out)
    if not os.path.isdir(os.path.dirname(out)):
        parser.error(f"{options.out}: there is no such folder")
    sys.argv = [options.script, *options.arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(options.script))
    code, ended = None, False
    try:
        with operator_trace(out, stacks=not options.no_stacks):
            try:
                runpy.run_path(options.script, run_name="__main__")
            except SystemExit as end:
                code = end.code
            ended = True
    except (OSError, ValueError) as failure:
        if not ended:  # The script raised an exception.
            raise
        print(f"memtrack_export: {failure}", file=sys.stderr)
        return code or 3
    print(f"memtrack_export: wrote {options.out}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
