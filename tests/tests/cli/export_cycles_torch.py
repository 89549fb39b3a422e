"""The part of PyTorch that memtrack's script for reference cycles uses: `torch.py` in the program's folder."""
from types import SimpleNamespace as Fake


class Device:
    def __init__(self, type_):
        self.type = type_

    def __str__(self):
        return self.type if self.type == "cpu" else f"{self.type}:0"


class TensorBase:
    # As in PyTorch, these attributes are not in the instance's dictionary.
    __slots__ = ("_facts", "_backward_hooks")

    @property
    def device(self):
        return Device(self._facts[0])

    @property
    def shape(self):
        return f"torch.Size([{self._facts[1]}])"


class Tensor(TensorBase):
    def untyped_storage(self):
        device, size, address = self._facts
        return Fake(nbytes=lambda: size * 4, data_ptr=lambda: address)


Tensor.__module__ = "torch"


def zeros(size, device="cuda", address=None):
    tensor = Tensor()
    tensor._facts = (device, size, 0x7F00_0000_0000 + size * 512 if address is None else address)
    return tensor


class NoDispatch:
    def __enter__(self):
        pass

    def __exit__(self, *_):
        pass


HISTORY = []
_C = Fake(
    TensorBase=TensorBase, DisableTorchFunctionSubclass=NoDispatch, _cuda_isHistoryEnabled=lambda: bool(HISTORY),
)


def memory_snapshot(include_traces=True):
    assert not include_traces, "the script needs no traces"
    frames = [
        {"filename": "/x/ceval.c", "line": 1, "name": "f"}, {"filename": "train.py", "line": 7, "name": "forward"},
        {"filename": "x.cpp", "line": 2, "name": "PyEval_Frame"}, {"filename": "train.py", "line": 9, "name": "main"},
    ]
    # Blocks of 512 bytes each. A tensor of 4 elements is in the block at index 4; the other blocks are unused.
    blocks = [{"size": 512, "state": "inactive"} for _ in range(4)]
    blocks += [{"size": 512, "state": "active_allocated", "frames": frames}, {"size": 512, "state": "inactive"}]
    return [{"address": 0x7F00_0000_0000, "blocks": blocks}]


def _record(*arguments, **_):
    HISTORY.append(arguments)


cuda = Fake(
    is_available=lambda: True, memory_snapshot=memory_snapshot, memory=Fake(_record_memory_history=_record),
)
