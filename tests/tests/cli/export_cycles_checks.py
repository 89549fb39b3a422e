"""Checks the graphs that memtrack's script for reference cycles makes from garbage. Prints `passed` after each check.

Runs in a folder that has the script as `memtrack_cycles.py`, and `torch.py` in place of PyTorch.
"""
import contextlib
import gc
import glob
import io
import json
import math
import os
import sys
import threading
import time
import types
import weakref

import memtrack_cycles as cycles
import torch

LATER = []


class Thing:
    pass


def nothing():
    """Makes a call: observed graphs are delivered at the next call of a function."""


def collect():
    gc.collect()
    nothing()


def pair(size=4):
    first, second = Thing(), Thing()
    first.peer, second.owner, first.weight = second, first, torch.zeros(size)


def edges(nodes):
    return {(node["label"].split("\n")[-1], text, nodes[to]["label"].split("\n")[-1]) for node in nodes for text, to in node["references"]}


def observed(make, **options):
    """Returns the graphs that are made while `make` runs and its garbage is collected."""
    graphs = []
    disarm = cycles.observe(graphs.append, **options)
    gc.disable()
    try:
        make()
        collect()
    finally:
        gc.enable()
        disarm()
    return graphs


def stderr_of(run):
    text = io.StringIO()
    with contextlib.redirect_stderr(text):
        run()
    return text.getvalue().splitlines()


def attributes_of_instances_keep_their_names():
    [nodes] = observed(pair)
    assert sorted(node["label"].split("\n")[0] for node in nodes if "Thing" in node["label"]) == ["object"] * 2, nodes
    # In Python versions that keep attributes without a dictionary, the search for names must not create one.
    direct = {("__main__.Thing", "peer", "__main__.Thing"), ("__main__.Thing", "weight", "torch.Tensor (torch.Size([4]))")}
    by_dictionary = {("dict[2]", "['peer']", "__main__.Thing"), ("dict[2]", "['weight']", "torch.Tensor (torch.Size([4]))")}
    assert (direct if sys.version_info >= (3, 11) else by_dictionary) <= edges(nodes), edges(nodes)
    assert [node["root"] for node in nodes].count(True) == 1
    # A second pass, after the dictionaries were created.
    first = Thing()
    first.me, first.weight = first, torch.zeros(4)
    objects = [first, first.weight]
    for _ in range(2):
        if sys.version_info < (3, 11):
            objects.append(first.__dict__)
        found = edges(cycles.graph(objects, context=lambda _: None))
        assert any("weight" in text for _, text, _ in found), found


def tensors_below_slots_frames_and_exceptions_are_named():
    class Slots:
        __slots__ = ("me", "buffer")

    class Child(Slots):
        __slots__ = ("more",)

    def slots():
        held = Child()
        held.me, held.buffer, held.more = held, torch.zeros(1), [held]

    def exception():
        tensor = torch.zeros(2)
        try:
            raise ValueError("x")
        except ValueError as failure:
            kept = failure

    def closure():
        tensor = torch.zeros(3)

        def again(times, *, start={"at": 1}):
            return again(times - 1) if times else tensor + start["at"]

    [nodes] = observed(slots)
    found = edges(nodes)
    assert {text for _, text, _ in found} >= {"me", "buffer", "more", "[0]"} and "?" not in str(found), found
    [nodes] = observed(exception)
    assert {("builtins.ValueError", "__traceback__", "builtins.traceback")} <= edges(nodes), edges(nodes)
    assert {text for _, text, _ in edges(nodes)} >= {"tb_frame", "local tensor", "local kept"}, edges(nodes)
    [nodes] = observed(closure)
    assert {text for _, text, _ in edges(nodes)} >= {"__closure__", "cell_contents", "[0]", "__kwdefaults__"}, edges(nodes)


def roots_have_their_memory_and_where_it_was_allocated():
    def views():
        held = [torch.zeros(4), torch.zeros(4), torch.zeros(8), torch.zeros(16, "cpu"), torch.zeros(0)]
        held.append(held)

    [nodes] = observed(views)
    roots = [node for node in nodes if node["root"]]
    assert [(root["device"], root["bytes"], root.get("storage"), root["context"]) for root in roots] == [
        ("cuda:0", 16, 0x7F00_0000_0800, "train.py:7:forward\ntrain.py:9:main"),
        ("cuda:0", 16, 0x7F00_0000_0800, "train.py:7:forward\ntrain.py:9:main"),
        ("cuda:0", 32, 0x7F00_0000_1000, None), ("cuda:0", 0, None, None),
    ], roots
    assert all(list(node) == ["label", "context", "root", "references"] for node in nodes if not node["root"])
    on_host = [node for node in nodes if node["label"] == "object\ntorch.Tensor"]
    assert len(on_host) == 1 and not on_host[0]["root"], nodes
    [nodes] = observed(views, cpu=True)
    assert sum(node["root"] for node in nodes) == 5
    assert torch.HISTORY == [("state",)], torch.HISTORY
    # Bytes of a storage that two tensors share are counted once.
    assert "held 4 tensors with 48 B on cuda:0" in cycles._held(observed(views)[0])


def garbage_is_freed_and_the_collector_is_left_as_it_was():
    for generation in range(3):
        alive = []

        def make():
            first, second = Thing(), [torch.zeros(2)]
            first.peer = second
            second.append(first)
            alive.append(weakref.ref(first))

        gc.collect()
        graphs = []
        disarm = cycles.observe(graphs.append)
        make()
        gc.collect(generation)
        nothing()
        assert len(graphs) == 1 and alive[0]() is None, (generation, graphs)
        disarm()
    assert observed(lambda: LATER.append([LATER])) == [], "nothing holds a tensor"
    assert gc.garbage == [] and gc.get_debug() == 0 and gc.isenabled() and sys.getprofile() is None
    assert not any("Collector" in repr(callback) for callback in gc.callbacks)
    # Other entries of `gc.garbage` are kept.
    gc.garbage.append("other")
    assert len(observed(pair)) == 1 and gc.garbage == ["other"]
    gc.garbage.clear()


def profilers_are_put_back():
    calls = []

    def profile(frame, event, argument):
        calls.append(frame.f_code.co_name)

    sys.setprofile(profile)
    graphs = observed(pair)
    there = sys.getprofile()
    sys.setprofile(None)
    assert there is profile and len(graphs) == 1 and "nothing" in calls


def callbacks_of_others_cause_no_delivery_inside_the_collector():
    def other(phase, info):
        nothing()

    disarm = cycles.observe(LATER.append)
    gc.callbacks.append(other)
    LATER.clear()
    pair()
    collect()
    gc.callbacks.remove(other)
    disarm()
    assert len(LATER) == 1 and gc.garbage == [], LATER
    LATER.clear()


def failures_of_a_callback_are_reported_and_do_not_reach_the_program():
    def fails(_):
        raise RuntimeError("no")

    def run():
        disarm = cycles.observe(fails)
        pair()
        collect()
        disarm()

    assert stderr_of(run) == ["memtrack_cycles: RuntimeError: no"] and gc.garbage == []


def the_last_collection_is_delivered_at_the_end():
    graphs = []
    disarm = cycles.observe(graphs.append)
    pair()
    gc.collect()
    disarm()
    assert len(graphs) == 1


def threads_collect_too():
    graphs = []
    disarm = cycles.observe(graphs.append)

    def work():
        for size in range(1, 30):
            pair(size)
            collect()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    collect()
    disarm()
    assert graphs and gc.garbage == [] and gc.get_debug() == 0 and sys.getprofile() is None, gc.garbage


def each_new_finding_is_written_to_a_file():
    os.mkdir("found")
    with open("found/cycles-2.json", "w") as file:
        file.write("other")

    def run():
        disarm = cycles.warn_tensor_cycles("found", files=3)
        for size in (4, 4, 8, 4):
            pair(size)
            collect()
        # Two findings in one collection, one of which was found before.
        pair(4), pair(16)
        collect()
        for size in (32, 64):
            pair(size)
            collect()
        disarm()
        pair(128)
        collect()

    # Automatic collections might be skipped, and counts would then be lower bounds.
    gc.disable()
    lines = stderr_of(run)
    gc.enable()
    files = sorted(glob.glob("found/*"))
    assert files == [f"found/cycles-{number}.json" for number in range(1, 5)], files
    with open("found/cycles-2.json") as file:
        assert file.read() == "other"
    for line, number in zip(lines, (1, 3, 4)):
        path = os.path.abspath(f"found/cycles-{number}.json")
        assert f"wrote {path}; to look at it: memtrack cycles {path} -o {path[:-5]}.html" in line, line
    assert "held 1 tensor with 16 B on cuda:0" in lines[0], lines
    assert lines[3:] == [
        "memtrack_cycles: more findings, which are not written: there are files enough",
        "memtrack_cycles: found 4 times: cycles-1.json", "memtrack_cycles: not written: 2 findings of 2 shapes",
    ], lines
    with open("found/cycles-4.json") as file:
        nodes = json.load(file)
    assert [node["label"] for node in nodes if node["root"]] == ["object\ntorch.Tensor (torch.Size([16]))"], nodes


def a_folder_that_is_not_writable_is_reported_once():
    with open("file", "w"):
        pass

    def run():
        disarm = cycles.warn_tensor_cycles("file/in")
        for size in (4, 8):
            pair(size)
            collect()
        disarm()

    lines = stderr_of(run)
    assert len(lines) == 2 and "cannot write findings" in lines[0] and "not written" in lines[1], lines


def write_takes_the_current_garbage():
    assert cycles.write("now.json") == 0 and not os.path.exists("now.json")
    pair(4), pair(8)
    LATER.append([])
    assert cycles.write("now.json") == 2 and gc.garbage == [] and gc.get_debug() == 0
    with open("now.json") as file:
        assert sum(node["root"] for node in json.load(file)) == 2
    with contextlib.suppress(OSError):
        pair()
        cycles.write("no/such/now.json")
        raise AssertionError
    assert gc.garbage == [] and gc.get_debug() == 0


def no_code_of_the_program_runs():
    class Nasty(type):
        def __eq__(cls, other):
            raise SystemExit("compared")

        __hash__ = None

        def __getattribute__(cls, name):
            raise SystemExit(name)

    class Key:
        def __repr__(self):
            raise SystemExit("repr")

    class Text(str):
        __repr__ = Key.__repr__

    class Mapping(dict):
        def items(self):
            raise SystemExit("items")

        __len__ = __iter__ = items

    def make():
        kind = Nasty("Kind", (), {"__dict__": property(Key.__repr__), "own": property(Key.__repr__)})
        held = Mapping({Key(): torch.zeros(1), Text("t"): kind})
        dict.__setitem__(held, "me", [held, Text("u")])
        held.own = held

    [nodes] = observed(make)
    found = edges(nodes)
    assert ("dict[3]", "[<__main__.Key>]", "torch.Tensor (torch.Size([1]))") in found, found
    assert ("dict[3]", "['t']", "Kind") in found or ("dict[3]", "['t']", "?") in found, found


def large_graphs_are_cut_and_their_rest_is_counted():
    limit, cycles.NODES = cycles.NODES, 100
    more, cycles.OBJECTS = cycles.OBJECTS, 100_000
    try:
        def chain(length):
            first = last = [torch.zeros(4)]
            for _ in range(length):
                last = [last, "x" * 1000]
            first.append(last)

        for length in (50, 1_000, 150_000):
            [nodes] = observed(lambda: chain(length))
            assert len(nodes) <= 101 and sum(node["root"] for node in nodes) == 1, len(nodes)
            assert max(len(node["label"]) for node in nodes) <= cycles.LENGTH
            left_out = sum(node.get("left_out", 0) for node in nodes)
            assert (left_out > 0) == (length > 50), left_out
            # The lists, the tensor and its contents.
            assert len(nodes) - (left_out > 0) + left_out in (length + 2, length + 3), (len(nodes), left_out, length)
            assert all(0 <= to < len(nodes) for node in nodes for _, to in node["references"])
            holders = [node for node in nodes if any(nodes[to]["root"] for _, to in node["references"])]
            assert holders
        # With many tensors, some of the objects that hold them are included.
        [nodes] = observed(lambda: [pair(size) for size in range(1, 500)])
        labels = [node["label"] for node in nodes]
        assert 60 < len(nodes) <= 101 and "object\n__main__.Thing" in labels, labels
    finally:
        cycles.NODES, cycles.OBJECTS = limit, more
    # If a container references one tensor many times, only some of the references are listed.
    def often():
        held = [torch.zeros(1)] * 10_000
        held.append(held)

    [nodes] = observed(often)
    assert [len(node["references"]) for node in nodes if node["label"].startswith("[")] == [cycles.NAMES + 1], nodes


def collections_of_young_objects_cost_a_bounded_part_of_the_time():
    # On this clock only the callback takes time, so a slow machine does not affect the test.
    clock = types.SimpleNamespace(now=1.0, monotonic=lambda: clock.now)
    cycles.time = clock
    cycles._collector._alone_until = cycles._collector._free_later_until = 0.0
    delivered = []

    def callback(nodes):
        delivered.append(nodes)
        clock.now += 0.2

    disarm = cycles.observe(callback)
    full = []

    def count(phase, info):
        if phase == "start" and info["generation"] == 2:
            full.append(0)

    gc.callbacks.append(count)
    for _ in range(20):
        pair()
        gc.collect(0)
        nothing()
    # The first collection delivers a new graph, the second delivers a known one, and a pause follows.
    assert len(delivered) == 2 and len(full) <= 6, (delivered, full)
    # Findings of a full collection are always delivered.
    pair()
    collect()
    assert len(delivered) == 3
    gc.callbacks.remove(count)
    disarm()
    cycles.time = time
    cycles._collector._alone_until = cycles._collector._free_later_until = 0.0


def skipped_collections_are_reported():
    def run():
        disarm = cycles.warn_tensor_cycles("found")
        gc.disable()
        pair(4), pair(4)
        collect()
        cycles._collector._alone_until = math.inf
        pair(4)
        gc.collect(0)
        gc.enable()
        disarm()

    assert stderr_of(run)[1:] == ["memtrack_cycles: found at least 2 times: cycles-5.json"]
    cycles._collector._alone_until = 0.0


def forked_children_are_not_observed():
    if not hasattr(os, "fork"):
        return
    graphs = []
    disarm = cycles.observe(graphs.append)
    child = os.fork()
    if child == 0:
        pair()
        collect()
        os._exit(len(graphs) + len(gc.garbage))
    assert os.waitpid(child, 0)[1] == 0
    disarm()


def labels_are_those_of_pytorch():
    def function():
        pass

    class Local:
        def method(self):
            pass

    label = cycles._label
    dead = weakref.ref(Thing())
    assert list(map(label, [1, 2.5, True, None, "it's", b"\x00", 1j])) == ["1", "2.5", "True", "None", '"it\'s"', "b'\\x00'", "1j"]
    assert label(function) == "function\nfunction"
    assert label(Local().method) == "instancemethod\nlabels_are_those_of_pytorch.<locals>.Local.method"
    assert label(types.MethodType(Local, 1)) == "instancemethod\n<anonymous>"
    assert label([1, "a", Thing(), None]) == "[1,'a',Thing,None]" and label(()) == "()" and label((2.0,)) == "(2.0)"
    assert label(list(range(14))) == "[0,1,2,3,4,5,6,7, ...6]"
    assert label({1: 2}) == "dict[1]" and label(sys) == "module\nsys" and label(Thing) == "type\nThing"
    assert label(dead) == "weakref (dead referent)"
    assert label(weakref.ref(Thing)) == f"weakref to id {hex(id(Thing))}"
    frame = sys._getframe()
    file = __file__ if len(__file__) <= 32 else f"...{__file__[-29:]}"
    assert label(frame) == f"frame\n{file}:{frame.f_lineno}"
    assert label({1}) == "object\nbuiltins.set" and label(Local()) == "object\n__main__.Local"
    assert label("\udc80" * 3) == "'\\udc80\\udc80\\udc80'" and len(label("x" * 1_000_000)) <= cycles.LENGTH
    assert label(1 << 100_000) == "int of 100001 bits"
    assert cycles._cut("\udc80") == "\\udc80"


CHECKS = [
    attributes_of_instances_keep_their_names, tensors_below_slots_frames_and_exceptions_are_named,
    roots_have_their_memory_and_where_it_was_allocated, garbage_is_freed_and_the_collector_is_left_as_it_was,
    profilers_are_put_back, callbacks_of_others_cause_no_delivery_inside_the_collector,
    failures_of_a_callback_are_reported_and_do_not_reach_the_program, the_last_collection_is_delivered_at_the_end,
    threads_collect_too, each_new_finding_is_written_to_a_file, a_folder_that_is_not_writable_is_reported_once,
    write_takes_the_current_garbage, no_code_of_the_program_runs, large_graphs_are_cut_and_their_rest_is_counted,
    collections_of_young_objects_cost_a_bounded_part_of_the_time, skipped_collections_are_reported,
    forked_children_are_not_observed, labels_are_those_of_pytorch,
]

if __name__ == "__main__":
    # With this limit, no search ends early on a slow machine.
    cycles.SECONDS = 1000.0
    for check in CHECKS:
        gc.collect()
        try:
            check()
        except BaseException as failure:
            import traceback

            traceback.print_exc()
            print(f"{check.__name__}: {type(failure).__name__}: {failure}")
            continue
        print(f"{check.__name__}: passed")
