"""Runs memtrack's export script on a substitute for PyTorch's profile. Writes made.optrace.jsonl.

The profile has two threads, calls that never ended, an annotation of an optimizer's step that does not enclose the events
in its time span, because the Python call that made it has ended, and a node for a gradient with a first child of a kind that
the script omits elsewhere.
"""
import os
import sys
from types import ModuleType, SimpleNamespace as Fake

NEVER = (1 << 63) - 1


def argument(kind, written=False, inner=None):
    type_ = Fake(kind=lambda: kind, getElementType=lambda: Fake(kind=lambda: inner))
    return Fake(type=type_, alias_info=Fake(is_write=written) if written else None)


SCHEMAS = {
    "aten::linear": [[argument("TensorType"), argument("TensorType"), argument("OptionalType", inner="TensorType")]],
    # Two overloads: a profile does not record which of them was called.
    "aten::add_": [
        [argument("TensorType", True), argument("TensorType"), argument("NumberType")],
        [argument("TensorType", True), argument("NumberType"), argument("NumberType")],
    ],
    "aten::_foreach_add_": [[argument("ListType", True, "TensorType"), argument("ListType", False, "TensorType")]],
    "aten::detach": [[argument("TensorType")]],
    "aten::mul": [[argument("TensorType"), argument("NumberType")], [argument("ListType", inner="VarType"), argument("IntType")]],
}


def schemas(name):
    if name not in SCHEMAS:
        raise RuntimeError("no such operator")
    return [Fake(arguments=arguments) for arguments in SCHEMAS[name]]


torch = ModuleType("torch")
torch.__version__ = "0.0"
torch._C = Fake(_jit_get_schemas_for_operator=schemas)
sys.modules["torch"] = torch


class Dtype:
    itemsize = 4

    def __str__(self):
        return "torch.float32"


def tensor(number, identified=True):
    known = number if identified else None
    return Fake(
        impl_ptr=number, storage_data_ptr=number << 8, id=known, allocation_id=known, device="cpu", dtype=Dtype(),
        sizes=[4, 4], strides=[4, 1], layout="torch.strided",
    )


def event(kind, name, start, end, *children, thread=1, **fields):
    return Fake(
        typed=(Fake(name=kind), Fake(**fields)), name=name, start_time_ns=start, end_time_ns=end, start_tid=thread,
        children=list(children),
    )


def op(name, start, end, *children, inputs=(), scope="FUNCTION", **more):
    fields = {"inputs": list(inputs), "scope": Fake(name=scope), "sequence_number": -1}
    return event("TorchOp", name, start, end, *children, **fields, **more)


def memory(start, size, ptr, thread=1):
    return event("Allocation", "[memory]", start, start, thread=thread, alloc_size=size, ptr=ptr, device="cpu")


def call(name, start, end, *children, module=None, optimizer=None):
    return event("PyCall", name, start, end, *children, module=module, optimizer=optimizer)


def c_call(name, start, end, *children):
    return event("PyCCall", name, start, end, *children)


x, weight, grad = tensor(1), tensor(2), tensor(3)
linear = Fake(self_ptr=0xA, cls_ptr=0xB, cls_name="Linear", parameters=[("weight", weight, None)])
sgd = Fake(self_ptr=0xC, parameters=[(weight, grad, [("momentum", tensor(4))])])

main = call(
    "train.py(3): step", 1000, NEVER,
    call(
        "nn.Module: Linear_0", 1010, 1200,
        call(
            "torch/nn/linear.py(7): forward", 1015, 1190,
            op(
                "aten::linear", 1020, 1100,
                # With a GPU, such events come first in the list, regardless of their times.
                event("Kineto", "cudaLaunchKernel", 1090, 1095),
                memory(1050, 64, 0x500), memory(1060, 0, 0x500),
                op("aten::made_up", 1070, 1080, inputs=[x]),
                inputs=[x, weight, None],
            ),
        ),
        module=linear,
    ),
    c_call("<built-in method enter of object at 0x7f00>", 1500, 1501,
           op("Optimizer.step#SGD.step", 1500, 1700, scope="USER_SCOPE")),
    op("aten::add_", 1550, 1560, memory(1555, 32, 0x700), inputs=[weight, 1.5, float("inf")]),
    memory(1570, 8, 0x800),
    call("nn.Module: Linear_0", 1580, 1590, op("aten::linear", 1581, 1589, inputs=[x, weight, None]), module=linear),
    # A tensor without memory is treated like a missing argument. A profile has a missing argument for each list that it does not
    # record.
    op("aten::mul", 1595, 1599, inputs=[tensor(9, identified=False), 2]),
    op("aten::_foreach_add_", 1600, 1610, inputs=[[weight], [grad, tensor(9, identified=False)]]),
    call("optim.py(9): hook", 1650, 1650, optimizer=sgd),
    op("aten::add_", 1701, 1710, inputs=[weight, grad, 1]),
)
other = op(
    "autograd::engine::evaluate_function: torch::autograd::AccumulateGrad", 1300, 1400,
    op(
        "torch::autograd::AccumulateGrad", 1310, 1350,
        event("Kineto", "hipFoo", 1311, 1312, thread=2),
        op("aten::detach", 1320, 1330, inputs=[grad]),
        inputs=[grad], scope="BACKWARD_FUNCTION",
    ),
    memory(1390, -64, 0x500, thread=2),
)
for below in (other, *other.children, *other.children[0].children):
    below.start_tid = 2

import memtrack_export  # noqa: E402: it must find the modules above

results = Fake(experimental_event_tree=lambda: [main, other])
profile = Fake(record_shapes=True, profile_memory=True, with_stack=True, profiler=Fake(kineto_results=results))
place = memtrack_export.Modules()
place._paths[0xA] = ("encoder.0", 0xB)
memtrack_export.export_operator_trace(profile, "made.optrace.jsonl", place)
memtrack_export.export_operator_trace(profile, "made.optrace.jsonl.gz", place, stacks=False)


def refused(reason, **options):
    try:
        memtrack_export.export_operator_trace(Fake(**{**vars(profile), **options}), "refused.optrace.jsonl")
    except ValueError as error:
        assert reason in str(error), error
        return
    raise AssertionError(f"not refused: {options}")


refused("without profile_memory=True, with_stack=True: make it with", profile_memory=False, with_stack=False)
refused("after it has ended", profiler=Fake(kineto_results=None))
refused("no allocations", profiler=Fake(kineto_results=Fake(experimental_event_tree=lambda: [op("aten::add_", 1, 2)])))
# A failure in the middle of the export leaves no new file, and does not change the existing one.
main.children.append(event("TorchOp", "without inputs", 1800, 1801))
try:
    memtrack_export.export_operator_trace(profile, "made.optrace.jsonl", place)
except AttributeError:
    pass
else:
    raise AssertionError("a broken event was accepted")
print(*sorted(name for name in os.listdir() if "optrace" in name))
