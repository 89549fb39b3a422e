"""Programs that leave garbage with tensors behind, for `cycles.py`. Each creates objects and drops them.

`attributes` returns the dictionary of an object's attributes, which Python 3.11 and newer creates on first access. PyTorch
accesses it while it visits the objects, which gives wrong results, so most programs access it first.
"""
import functools
import types
import weakref

import torch


class Thing:
    pass


class Slots:
    __slots__ = ("me", "buffer")


def attributes(thing):
    return thing.__dict__


def self_list():
    held = [torch.zeros(2, 3), 1, "text", None, 2.5, b"bytes"]
    held += [held, held]


def instances(access=attributes):
    module, hook = Thing(), Thing()
    access(module), access(hook)
    module.hook, hook.owner, module.weight, hook.note = hook, module, torch.ones(4), "text"


def instances_unasked():
    instances(lambda thing: None)


def slots():
    held = Slots()
    held.me, held.buffer = held, torch.zeros(3)


def closure():
    captured = torch.zeros(1)

    def again(times, scale=2.0, *, offset={"shift": 1}):
        return again(times - 1) * captured if times else scale + offset["shift"]


def bound_method():
    class Hook:
        def __init__(self):
            attributes(self)
            self.buffer, self.callback = torch.zeros(5, 5), self.call

        def call(self):
            return self.buffer


def bound_method_of_an_instance():
    hook = Thing()
    attributes(hook)
    hook.callback, hook.weight = types.MethodType(lambda self: self, hook), torch.zeros(2)


def containers():
    tensor, thing = torch.zeros(7), Thing()
    attributes(thing)
    held = {
        "plain": tensor, 'q"uo\'te': [1, [2], 3], ("tuple", 1): (tensor, thing), 5: {tensor, 2}, None: frozenset((thing,)),
        "\u00e9\n\\": 1.5, thing: [thing],
    }
    held["me"], held["weak"], thing.held = held, weakref.ref(thing), held
    thing.long = list(range(12)) + [tensor, tensor]


def exception():
    tensor = torch.zeros(3)
    try:
        raise ValueError("x")
    except ValueError as failure:
        kept = [failure, tensor]
        kept.append(kept)


def partial():
    held = Thing()
    attributes(held)
    held.step = functools.partial(max, held, key=torch.zeros(6))


def no_tensor():
    held = []
    held.append({"me": held})


def ring():
    things = [Thing() for _ in range(50)]
    for index, thing in enumerate(things):
        attributes(thing)["next"] = things[(index + 1) % 50]
        if index % 7 == 3:
            thing.tensor = torch.zeros(index + 1)


def module_with_hook():
    torch.utils.hooks.RemovableHandle.next_id = 0
    layer = torch.nn.Linear(3, 4)
    attributes(layer)
    layer.register_forward_hook(lambda *_: layer)
    for parameter in layer.parameters():
        attributes(parameter)


PROGRAMS = [
    self_list, instances, instances_unasked, slots, closure, bound_method, bound_method_of_an_instance, containers,
    exception, partial, no_tensor, ring, module_with_hook,
]
