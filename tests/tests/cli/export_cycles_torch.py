"""As much of PyTorch as memtrack's script for reference cycles looks at. `torch.py` in the folder of the program."""
from types import SimpleNamespace as Of


class Device:
    def __init__(self, type_):
        self.type = type_

    def __str__(self):
        return self.type if self.type == "cpu" else f"{self.type}:0"


class TensorBase:
    # Not in a dictionary, as in PyTorch.
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
        return Of(nbytes=lambda: size * 4, data_ptr=lambda: address)


Tensor.__module__ = "torch"


def zeros(size, device="cuda", address=None):
    made = Tensor()
    made._facts = (device, size, 0x7F00_0000_0000 + size * 512 if address is None else address)
    return made


class Looking:
    def __enter__(self):
        pass

    def __exit__(self, *_):
        pass


HISTORY = []
_C = Of(
    TensorBase=TensorBase, DisableTorchFunctionSubclass=Looking, _cuda_isHistoryEnabled=lambda: bool(HISTORY),
)


def memory_snapshot(include_traces=True):
    assert not include_traces, "needs them not"
    frames = [
        {"filename": "/x/ceval.c", "line": 1, "name": "f"}, {"filename": "train.py", "line": 7, "name": "forward"},
        {"filename": "x.cpp", "line": 2, "name": "PyEval_Frame"}, {"filename": "train.py", "line": 9, "name": "main"},
    ]
    # Each block has 512 bytes: a tensor of 4 has the fourth, and what follows is not in use.
    blocks = [{"size": 512, "state": "inactive"} for _ in range(4)]
    blocks += [{"size": 512, "state": "active_allocated", "frames": frames}, {"size": 512, "state": "inactive"}]
    return [{"address": 0x7F00_0000_0000, "blocks": blocks}]


def _record(*arguments, **_):
    HISTORY.append(arguments)


cuda = Of(
    is_available=lambda: True, memory_snapshot=memory_snapshot, memory=Of(_record_memory_history=_record),
)
