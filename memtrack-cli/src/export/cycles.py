#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Finds what keeps device memory alive in a Python program: the reference cycles that hold tensors, as graphs for
`memtrack cycles`. This is a single file that needs nothing but PyTorch (2.1 or newer) and Python's standard library (3.8
or newer); `memtrack export-script --cycles` prints it.

An object without references is freed at once, unless it is in a reference cycle: then it waits for Python's garbage
collector, which counts objects and does not consider the gigabytes of device memory behind them. This script inspects
the garbage that the collector finds. To run a whole program without changing it:

    memtrack export-script --cycles -o memtrack_cycles.py
    python memtrack_cycles.py train.py --epochs 1
    memtrack cycles cycles-1.json -o cycles-1.html

To observe a part of a program. Each new finding is written to a file, and reported on standard error:

    import memtrack_cycles
    disarm = memtrack_cycles.warn_tensor_cycles()
    train()
    disarm()

To call a function with the nodes of each graph, or to write a graph of the current garbage:

    disarm = memtrack_cycles.observe(lambda nodes: print(len(nodes), "objects"))
    memtrack_cycles.write("cycles.json")

To try this without a GPU, include tensors on the CPU: `--cpu`, or `cpu=True`.

The cost: each full collection that finds garbage is followed by a second one. A collection of young objects that finds
device tensors leads to two full collections. If such collections recently found nothing new and took more than a tenth
of the time, some are skipped: their garbage is not inspected, nor is garbage that a thread collects while another
thread inspects some. Garbage without tensors may be freed a little later. The program must not change gc.DEBUG_SAVEALL
while it is observed. Forked processes are not observed.

Files contain names of types, functions, files and attributes, and short strings and numbers in containers, but no
contents of tensors.
"""
import argparse
import atexit
import gc
import hashlib
import itertools
import json
import os
import runpy
import sys
import threading
import time
import types
import weakref
from array import array
from collections import Counter

# Limits of inspection, memory and output.
OBJECTS = 1_000_000  # objects of one collection; if there are more, only some that lead to tensors are inspected
SECONDS = 3.0  # time for selecting these objects, after a first visit of all
NODES = 20_000  # objects in a graph
EDGES = 200_000  # references in a graph
NAMES = 8  # names of references from one object to another
ITEMS = 100_000  # items of one container that are named by index or key
LENGTH = 200  # characters of a label or a name
SHAPES = 10_000  # distinct findings that are remembered to count repetitions
FILES = 20  # files, unless the caller sets another limit
# The maximum share of the time that may be spent on collections of young objects.
SHARE = 0.1
MAX_DELAYED = 100_000  # objects whose deallocation may be delayed

OLDEST = 2


def warn_tensor_cycles(folder=".", files=FILES, cpu=False, history=True):
    """Writes a graph of each new finding to `folder`, and reports it on standard error. Returns a function that stops this.

    A finding is a group of objects that hold each other and device tensors, and that nothing outside the group holds any
    more. The files are named cycles-1.json and so on, and replace no existing file. A finding with the same labels and
    references as an earlier one is counted, but not written again.

    files: the maximum number of files to write.
    cpu: whether to include tensors on the CPU.
    history: whether to make CUDA's allocator record allocation stacks, if it does not already.
    """
    found = _Findings(folder, files)
    return _observe(_Observer(found.look, cpu), history, found.report_counts)


def observe(callback, cpu=False, history=True):
    """Calls `callback(nodes)` when garbage holds device tensors, before it is freed. Returns a function that stops this.

    The nodes are those of `graph` for all garbage, and hold no references to objects. The callback is called outside the
    collector, in the thread that ran the collection, when that thread next calls a function.
    """
    shapes = set()

    def look(nodes):
        add_contexts(nodes)
        callback(nodes)
        new = {_shape(part) for part in findings(nodes)} - shapes
        if len(shapes) < SHAPES:
            shapes.update(new)
        return bool(new)

    return _observe(_Observer(look, cpu), history)


def write(path, cpu=False):
    """Collects all garbage now and writes its graph to `path`; an existing file is replaced.

    Returns the number of device tensors in the graph; if there are none, nothing is written. Raises OSError if the file
cannot be written.
    """
    found = []

    def look(nodes):
        add_contexts(nodes)
        found.extend(nodes)

    _collector.look_now(_Observer(look, cpu))
    if found:
        save(found, path)
    return sum(node["root"] for node in found)


def save(nodes, path):
    """Writes nodes as a file for `memtrack cycles`; the file appears when it is complete, and replaces an existing one."""
    path = os.fspath(path)
    part = _write_part(nodes, path)
    try:
        os.replace(part, path)
    except BaseException:
        os.unlink(part)
        raise


def graph(objects, cpu=False, context=None):
    """Returns the graph of these objects: a list of nodes, each a dictionary with

    label: a description of the object; context: where a device tensor's memory was allocated, or None; root: whether the
    object is a device tensor; references: lists of a name and the index of the target node. Device tensors also have
    device, bytes (of the storage) and storage (its address): tensors with the same storage share those bytes.

    If there are too many objects, the nodes nearest to the largest tensors are kept, and a last node has the number of
    missing objects: left_out.

    context: a function that returns the context of a device tensor, or None; without it, contexts come from CUDA's
    allocator. The objects are not changed, except that Python may create the dictionaries of their attributes.
    """
    tensors = _Tensors(cpu)
    nodes = _graph(objects, tensors, context)
    if context is None:
        add_contexts(nodes)
    return nodes


def add_contexts(nodes):
    """Finds where the memory of device tensors was allocated. The tensors must still exist, or the memory may be reused."""
    for kind in {node["device"].split(":")[0] for node in nodes if node.get("storage")}:
        wanted = {}
        for node in nodes:
            if node.get("storage") and node["device"].split(":")[0] == kind:
                wanted.setdefault(node["storage"], []).append(node)
        for address, context in _contexts(kind, wanted):
            for node in wanted[address]:
                node["context"] = context


# ---- Garbage collection ----------------------------------------------------------------------------------------------


class _Collector:
    """Makes Python's collector keep the garbage that it would free, passes it to observers, and then frees it.

    Code that could use objects that are about to be freed must not run inside the collector. So the collector's callback
    only installs a profiler hook, which Python calls at the thread's next function call.

    Kept garbage moves to an older generation, so only a full collection frees it, which takes a long time in a large program.
    So a collection of young objects is skipped unless they include device tensors; and after a collection without a new
    finding, all collections of young objects are skipped for a while. Kept garbage without tensors may be freed later.
    """

    def __init__(self):
        self.observers = []
        self._process = None
        # The index in gc.garbage of the first object that is kept for the observers, or None; and whether these objects
        # may be passed to the observers, which is false while a thread is inside the collection.
        self._kept_from, self._ready = None, False
        self._keeping = self._user_keeps = False
        self._looking = None  # The thread that inspects garbage.
        self._busy = self._ran = False
        # The number of skipped collections that might have found device tensors; and how many of them a profiler prevented.
        self.left_alone = self.profiled = 0
        # The number of objects whose deallocation is delayed; the ends of that delay and of skipping young collections.
        self._delayed = 0
        self._free_later_until = self._alone_until = 0.0

    def add(self, observer):
        if self._process != os.getpid():
            # A forked process is not observed unless it adds an observer itself.
            self.__init__()
            self._process = os.getpid()
        if self._on_collection not in gc.callbacks:
            gc.callbacks.append(self._on_collection)
            self.left_alone = self.profiled = 0
        self.observers.append(observer)

    def remove(self, observer):
        """Passes the remaining garbage to an observer and removes it. Returns whether it was registered."""
        if self._process != os.getpid() or observer not in self.observers:
            return False
        self._look(0)
        self.observers.remove(observer)
        if not self.observers:
            gc.callbacks.remove(self._on_collection)
            self._delayed = 0
            self._stop_keeping()
            if self._kept_from is not None and not self._user_keeps:
                del gc.garbage[self._kept_from:]  # Garbage of a collection in another thread.
            self._kept_from, self._ready = None, False
        return True

    def look_now(self, observer):
        """Passes all current garbage to one observer. Exceptions of the observer are raised here."""
        self._look(0)
        busy, self._busy, self._looking = self._busy, True, threading.get_ident()
        begin = len(gc.garbage)
        try:
            self._keep()
            gc.collect()
            self._stop_keeping()
            observer.look(gc.garbage[begin:])
        finally:
            self._stop_keeping()
            self._free(begin)
            self._busy = busy

    def _on_collection(self, phase, info):
        """Handles the beginning and the end of a collection; the collector calls it."""
        self._ran = True
        if self._process != os.getpid():
            return
        if self._busy:
            self.left_alone += phase == "start" and threading.get_ident() != self._looking
            return
        try:
            if phase == "stop":
                self._end(info["generation"])
            elif self._kept_from is None and self._should_keep(info["generation"]):
                self._keep()
                self._kept_from, self._ready = len(gc.garbage), False
        except Exception as failure:  # The program must not be affected.
            _say(f"{type(failure).__name__}: {failure}")

    def _should_keep(self, generation):
        previous = sys.getprofile()
        if previous is not None and not callable(previous):
            self.left_alone += 1
            self.profiled += 1
            return False  # A profiler written in C, which could not be restored.
        if generation >= OLDEST:
            return True
        if time.monotonic() < self._alone_until:
            self.left_alone += 1
            return False
        for young in range(generation + 1):
            if self._concerns(gc.get_objects(generation=young)):
                return True
        return False

    def _concerns(self, objects):
        # No inner function may capture a variable here: its cell could be one of the objects, and create a cycle.
        for observer in self.observers:
            if observer.concerns(objects):
                return True
        return False

    def _end(self, generation):
        if self._kept_from is None:
            return
        if len(gc.garbage) == self._kept_from:
            self._stop_keeping()
            self._kept_from = None
            return
        self._ready = True
        if type(sys.getprofile()) is not _Hook:
            sys.setprofile(_Hook(self, generation, sys.getprofile()))

    def is_outside(self):
        """Returns whether this thread is outside the collector: inside it, gc.collect does nothing."""
        if self._busy or not self._ready:
            return True
        self._looking = threading.get_ident()
        self._busy, self._ran = True, False
        gc.collect(0)
        self._busy = False
        return self._ran

    def look(self, generation):
        """Passes the garbage to all observers, outside the collector, and frees it. Never fails."""
        try:
            self._look(generation)
        except Exception as failure:  # The program must not be affected.
            _say(f"{type(failure).__name__}: {failure}")

    def _look(self, generation):
        if self._busy or not self._ready:
            return
        self._looking = threading.get_ident()
        self._busy, start, new = True, time.monotonic(), False
        begin, self._kept_from, self._ready = self._kept_from, None, False
        try:
            if generation < OLDEST:
                garbage = gc.garbage[begin:]
                if not self._concerns(garbage) and self._may_delay(len(garbage)):
                    self._stop_keeping()
                    if not self._user_keeps:
                        del gc.garbage[begin:]
                    return
                # Freeing this garbage also frees old garbage, which must be inspected first.
                gc.collect()
            self._stop_keeping()
            garbage = gc.garbage[begin:]
            for observer in list(self.observers):
                try:
                    new = observer.look(garbage) or new
                except Exception as failure:
                    _say(f"{type(failure).__name__}: {failure}")
            concerned = self._concerns(garbage)
            del garbage
            self._free(begin)
            self._delayed = 0
            now = time.monotonic()
            self._free_later_until = now + (now - start) / SHARE
            if concerned and not new:
                self._alone_until = self._free_later_until
        finally:
            self._stop_keeping()
            self._busy = False

    def _may_delay(self, objects):
        """Returns whether freeing this garbage, which has no tensors, may be delayed."""
        self._delayed += objects
        return time.monotonic() < self._free_later_until and self._delayed <= MAX_DELAYED

    def _free(self, begin):
        if not self._user_keeps:
            del gc.garbage[begin:]
            # Does nothing while another thread collects. Then the garbage is freed later, and may be inspected twice.
            gc.collect()

    def _keep(self):
        if not self._keeping:
            flags = gc.get_debug()
            self._keeping, self._user_keeps = True, bool(flags & gc.DEBUG_SAVEALL)
            gc.set_debug(flags | gc.DEBUG_SAVEALL)

    def _stop_keeping(self):
        if self._keeping:
            self._keeping = False
            if not self._user_keeps:
                gc.set_debug(gc.get_debug() & ~gc.DEBUG_SAVEALL)


class _Hook:
    """A profiler hook that waits until the thread is outside the collector, and then restores the previous hook."""

    def __init__(self, collector, generation, previous):
        self._collector, self._generation, self._previous = collector, generation, previous

    def __call__(self, frame, _event, _argument):
        # The collector may still call other callbacks.
        if frame.f_globals is not globals() and self._collector.is_outside():
            sys.setprofile(self._previous)
            self._collector.look(self._generation)


_collector = _Collector()


class _Observer:
    """Receives the graph of garbage that has device tensors. `callback` returns whether the graph has a new finding."""

    def __init__(self, callback, cpu):
        self._callback, self._tensors = callback, _Tensors(cpu)

    def concerns(self, objects):
        """Returns whether there are device tensors among these objects."""
        with self._tensors.looking():
            return self._tensors.any_root(objects)

    def look(self, garbage):
        nodes = _graph(garbage, self._tensors, roots_only=True)
        return bool(nodes) and self._callback(nodes)


class _Disarm:
    """Removes an observer when called or at exit. A class, because a function that refers to itself would be a cycle."""

    def __init__(self, observer, at_end):
        self._observer, self._at_end = observer, at_end

    def __call__(self):
        atexit.unregister(self)
        if _collector.remove(self._observer) and self._at_end is not None:
            self._at_end()


def _observe(observer, history, at_end=None):
    if history:
        _remember_allocations()
    _collector.add(observer)
    disarm = _Disarm(observer, at_end)
    # Removes the observer at exit, before modules are destroyed in an unspecified order.
    atexit.register(disarm)
    return disarm


# ---- Findings --------------------------------------------------------------------------------------------------------


class _Findings:
    """Writes a file for each new finding, and counts repetitions."""

    def __init__(self, folder, files):
        self._folder, self._files = os.path.abspath(os.fspath(folder)), files
        self._number = 0
        # For each shape: the file of the finding, or None, and the number of times that the shape was found.
        self._found = {}
        self._failed = self._full = False

    def look(self, nodes):
        """Handles the findings of a graph, and returns whether one is new."""
        before = len(self._found)
        for finding in findings(nodes):
            shape = _shape(finding)
            known = self._found.get(shape)
            if known is not None:
                known[1] += 1
            elif len(self._found) < SHAPES:
                self._found[shape] = [self._new(finding), 1]
        return len(self._found) > before

    def _new(self, nodes):
        """Writes a file and returns its path; None if no file is written."""
        if self._failed:
            return None
        if self._files <= 0:
            if not self._full:
                self._full = True
                _say("more findings, which are not written: there are files enough")
            return None
        add_contexts(nodes)
        try:
            path = self._save(nodes)
        except OSError as failure:
            self._failed = True
            _say(f"cannot write findings: {failure}")
            return None
        self._files -= 1
        shown = os.path.relpath(path) if self._folder == os.getcwd() else path
        page = os.path.splitext(shown)[0] + ".html"
        _say(f"{_held(nodes)}: wrote {shown}; to look at it: memtrack cycles {shown} -o {page}")
        return path

    def _save(self, nodes):
        os.makedirs(self._folder, exist_ok=True)
        part = _write_part(nodes, os.path.join(self._folder, "cycles.json"))
        try:
            while True:
                self._number += 1
                path = os.path.join(self._folder, f"cycles-{self._number}.json")
                if _rename_new(part, path):
                    return path
        except BaseException:
            os.unlink(part)
            raise

    def report_counts(self):
        """Reports how often findings recurred, and how many collections were not inspected."""
        least = "at least " if _collector.left_alone else ""
        if _collector.profiled:
            _say(f"{_collector.profiled} collections were not looked at because of a profiler")
        for path, count in self._found.values():
            if path is not None and count > 1:
                _say(f"found {least}{count} times: {os.path.basename(path)}")
        unwritten = [count for path, count in self._found.values() if path is None]
        if unwritten:
            _say(f"not written: {least}{sum(unwritten)} findings of {len(unwritten)} shapes")


def findings(nodes):
    """Splits a graph into independent parts that hold device tensors.

    Each part has the objects that lead to its tensors, and all objects that those refer to.
    """
    holders = _holders(nodes)
    leading = _leading(nodes, holders)
    # A part contains all objects that lead to tensors and are connected by references in either direction.
    left_out = [node for node in nodes if "left_out" in node]
    parts, placed = [], set()
    for start in range(len(nodes)):
        if start not in leading or start in placed:
            continue

        def neighbours(index):
            below = [target for _, target in nodes[index]["references"] if target in leading]
            return holders[index] + below

        part = _reached([start], neighbours)
        placed |= part
        below = _reached(part, lambda index: [target for _, target in nodes[index]["references"]])
        parts.append(_renumbered(nodes, sorted(below)) + left_out)
    return parts


def _holders(nodes):
    holders = [[] for _ in nodes]
    for index, node in enumerate(nodes):
        for _, target in node["references"]:
            holders[target].append(index)
    return holders


def _leading(nodes, holders):
    """Returns the indices of all nodes that lead to a device tensor."""
    return _reached([index for index, node in enumerate(nodes) if node["root"]], holders.__getitem__)


def _reached(starts, neighbours):
    """Returns the indices that can be reached from `starts`; `neighbours` returns the indices next to a given one."""
    reached, todo = set(starts), list(starts)
    while todo:
        for index in neighbours(todo.pop()):
            if index not in reached:
                reached.add(index)
                todo.append(index)
    return reached


def _renumbered(nodes, kept):
    number = {index: new for new, index in enumerate(kept)}
    return [
        {**nodes[index], "references": [[text, number[to]] for text, to in nodes[index]["references"] if to in number]}
        for index in kept
    ]


def _shape(nodes):
    """Returns a key that is equal for findings with the same labels and references, in any order of nodes.

    Only nodes that lead to tensors count: the label of another node may contain a number that counts steps.
    """
    # The address of a weak reference's target differs each time.
    labels = ["weakref" if node["label"].startswith("weakref to id ") else node["label"] for node in nodes]
    leading = _leading(nodes, _holders(nodes))
    count = Counter(labels[index] for index in leading)
    for index in leading:
        of = nodes[index]["references"]
        count.update((labels[index], text, labels[target]) for text, target in of if target in leading)
    hashed = hashlib.sha256()
    for item in sorted(map(repr, count.items())):
        hashed.update(item.encode("utf-8", "backslashreplace"))
        hashed.update(b"\0")
    return hashed.digest()


def _held(nodes):
    """Describes the tensors that a finding holds."""
    roots = [node for node in nodes if node["root"]]
    storages = {(node["device"], node["storage"]): node["bytes"] for node in roots if node.get("storage")}
    devices = sorted({node["device"] for node in roots})
    known = all("bytes" in node for node in roots)
    size = f" with {_bytes(sum(storages.values()))}" if known else ""
    objects = sum("left_out" not in node for node in nodes)
    tensors = "1 tensor" if len(roots) == 1 else f"{len(roots)} tensors"
    text = f"garbage of {objects} objects held {tensors}{size} on {', '.join(devices[:4])}"
    left_out = sum(node.get("left_out", 0) for node in nodes)
    return f"{text} ({left_out} more objects of this collection left out)" if left_out else text


def _bytes(size):
    if size < 1024:
        return f"{size} B"
    for unit in ("KiB", "MiB", "GiB"):
        size /= 1024
        if size < 1024:
            return f"{size:.2f} {unit}"
    return f"{size / 1024:.2f} TiB"


def _write_part(nodes, path):
    """Writes nodes to a temporary file next to `path` and returns its name."""
    part = f"{path}.{os.getpid()}.part"
    with open(part, "x", encoding="ascii", newline="\n") as out:
        try:
            out.write("[")
            for index, node in enumerate(nodes):
                out.write(",\n" if index else "\n")
                json.dump(node, out, check_circular=False)
            out.write("\n]\n")
        except BaseException:
            os.unlink(part)
            raise
    return part


def _rename_new(part, path):
    """Renames a file, unless a file of that name exists."""
    try:
        os.link(part, path)
    except FileExistsError:
        return False
    except OSError:  # The file system has no hard links.
        if os.path.lexists(path):
            return False
        os.rename(part, path)
        return True
    os.unlink(part)
    return True


def _say(text):
    try:
        print(f"memtrack_cycles: {text}", file=sys.stderr)
    except (AttributeError, OSError, ValueError):
        pass  # Standard error is closed.


# ---- The graph -------------------------------------------------------------------------------------------------------


def _graph(objects, tensors, context=None, roots_only=False):
    """Returns the nodes of `graph`. With `roots_only`, the list is empty if there are no roots."""
    enabled = gc.isenabled()
    gc.disable()  # The many objects that are created here are not garbage, but would trigger collections.
    try:
        with tensors.looking():
            return _Graph(objects, tensors).nodes(context, roots_only)
    finally:
        if enabled:
            gc.enable()


class _Graph:
    def __init__(self, objects, tensors):
        self._tensors = tensors
        count = len(objects)
        if count > OBJECTS:
            roots = itertools.islice(tensors.roots(objects), NODES // 2)
            objects = _leading_to_wanted(objects, {id(objects[index]) for index in roots})
        self._not_seen = count - len(objects)
        # Dead proxies raise an exception at any access.
        proxy, callable_proxy = weakref.ProxyTypes
        self._objects = [held for held in objects if type(held) is not proxy and type(held) is not callable_proxy]

    def nodes(self, context, roots_only):
        objects, tensors = self._objects, self._tensors
        roots = list(tensors.roots(objects))
        if roots_only and not roots:
            return []
        # All references are read before any names, because finding a name may create objects.
        starts, targets = self._references()
        facts = {index: tensors.facts(objects[index]) for index in roots}
        if len(objects) > NODES:
            kept = self._nearest(roots, facts, starts, targets)
        else:
            kept = range(len(objects))
        number = {index: new for new, index in enumerate(kept)}
        nodes, room, cut, namer = [], EDGES, 0, _Namer(tensors)
        for index in kept:
            held = objects[index]
            leads_to = [to for to in dict.fromkeys(targets[starts[index]:starts[index + 1]]) if to in number]
            names = namer.names(held, {id(objects[to]) for to in leads_to}) if leads_to else {}
            references = [[text, number[to]] for to in leads_to for text in names.get(id(objects[to]), "?")]
            is_root = index in facts
            node = {"label": _label(held, facts.get(index)), "context": None, "root": is_root, "references": references}
            cut += max(0, len(references) - room)
            del references[room:]
            room -= len(references)
            if is_root:
                node["context"] = context(held) if context is not None else None
                node.update((key, value) for key, value in facts[index].items() if key != "shape")
            nodes.append(node)
        left_out = len(objects) - len(kept) + self._not_seen
        if left_out or cut:
            label = f"left out\n{left_out} objects, {cut} references"
            nodes.append({"label": label, "context": None, "root": False, "references": [], "left_out": left_out})
        return nodes

    def _references(self):
        """Returns the target indices of all references in one array, and the position at which each object's references begin."""
        index = {id(held): number for number, held in enumerate(self._objects)}
        starts, targets, of = array("Q", [0]), array("I"), gc.get_referents
        for held in self._objects:
            for target in of(held):
                number = index.get(id(target))
                if number is not None:
                    targets.append(number)
                elif type(target) is dict and _own_attributes(held) is target:
                    # The inspection after the collection created this dictionary: use the dictionary's values instead.
                    targets.extend(index[id(value)] for value in of(target) if id(value) in index)
            starts.append(len(targets))
        return starts, targets

    def _nearest(self, roots, facts, starts, targets):
        """Returns the indices of the objects to keep: the largest tensors, each with the nearest objects that lead to it."""
        holders = {}
        for index in range(len(self._objects)):
            for target in targets[starts[index]:starts[index + 1]]:
                holders.setdefault(target, []).append(index)
        kept = {}
        for root in sorted(roots, key=lambda index: -facts[index].get("bytes", 0)):
            if len(kept) >= NODES:
                break
            if root in kept:
                continue
            # One large finding must leave room for others.
            room = (NODES - len(kept)) // 2
            kept[root] = None
            near = [root]
            while near and room > 0:
                farther = []
                for index in near:
                    for holder in holders.get(index, ()):
                        if holder not in kept and room > 0:
                            kept[holder] = None
                            farther.append(holder)
                            room -= 1
                near = farther
        return sorted(kept)


def _leading_to_wanted(objects, wanted):
    """Selects, from very many objects, those with the wanted ids and some that lead to them, in the original order.

    Objects that are not selected take no memory here.
    """
    end = time.monotonic() + SECONDS
    order, referents = objects, gc.get_referents
    while True:
        before = len(wanted)
        for held in order:
            if id(held) not in wanted and not wanted.isdisjoint(map(id, referents(held))):
                wanted.add(id(held))
                if len(wanted) >= OBJECTS // 10:
                    break
        if len(wanted) in (before, OBJECTS // 10) or time.monotonic() > end:
            return [held for held in objects if id(held) in wanted]
        # A chain of references that gains one object per pass is followed to its end in one pass in the other direction.
        order = objects[::-1] if order is objects else objects


class _Tensors:
    """Finds device tensors and their properties, without running code of tensor classes."""

    def __init__(self, cpu):
        import torch

        self._torch = torch
        self._tensor = torch.Tensor
        self._own = getattr(torch._C, "TensorBase", None) or torch._C._TensorBase
        self._host = ("meta",) if cpu else ("cpu", "meta")

    def looking(self):
        """Returns a context manager inside which no code of tensor classes runs."""
        return self._torch._C.DisableTorchFunctionSubclass()

    def attribute(self, tensor, name):
        """Returns an attribute as the base class of tensors defines it."""
        return getattr(self._own, name).__get__(tensor)

    def is_tensor(self, kind):
        return any(base is self._tensor for base in kind.__mro__)

    def kinds(self, objects):
        """Returns the ids of those classes of these objects that are tensors with memory."""
        kinds = list(map(type, objects))
        # Keyed by id, because a metaclass may define equality.
        kinds = {id(kind): kind for kind in kinds}
        fake = getattr(sys.modules.get("torch._subclasses.fake_tensor"), "FakeTensor", None)
        return {
            number for number, kind in kinds.items()
            if self.is_tensor(kind) and not any(base is fake for base in kind.__mro__)
        }

    def any_root(self, objects):
        for _ in self.roots(objects):
            return True
        return False

    def roots(self, objects):
        """Yields the indices of device tensors."""
        kinds = self.kinds(objects)
        if kinds:
            for index, held in enumerate(objects):
                if id(type(held)) in kinds and self._is_on_device(held):
                    yield index

    def _is_on_device(self, tensor):
        try:
            return self.attribute(tensor, "device").type not in self._host
        except Exception:
            return False

    def facts(self, tensor):
        """Returns shape, device, bytes and storage, as far as those are known."""
        facts = {"shape": "?", "device": str(self.attribute(tensor, "device"))}
        try:
            facts["shape"] = str(self.attribute(tensor, "shape"))
        except Exception:
            pass
        try:
            storage = self._tensor.untyped_storage(tensor)
            size = storage.nbytes()
            address = storage.data_ptr() if size and not self._is_copied_on_write(tensor) else 0
            if size == 0 or address:
                facts["bytes"] = size
            if address:
                facts["storage"] = address
        except Exception:
            pass  # The tensor has several storages, or none.
        return facts

    def _is_copied_on_write(self, tensor):
        """Returns whether reading the address would copy the tensor."""
        is_cow = getattr(self._torch._C, "_is_cow_tensor", None)
        return is_cow is not None and is_cow(tensor)


# ---- Names of references ---------------------------------------------------------------------------------------------

_TEXTS = (str, bytes)
_NUMBERS = (int, float, complex)
_BASIC = (*_NUMBERS, type(None), *_TEXTS)

# Attributes implemented in C that return objects which the object holds, in addition to member descriptors.
_ATTRIBUTES = {
    id(types.FunctionType): ("__defaults__", "__kwdefaults__", "__code__", "__name__", "__qualname__", "__type_params__"),
    id(types.BuiltinFunctionType): ("__self__",),
    id(types.FrameType): ("f_back", "f_code", "f_builtins", "f_globals", "f_trace"),
    id(types.TracebackType): ("tb_frame", "tb_next"),
    id(BaseException): ("__traceback__", "__context__", "__cause__", "args"),
    id(types.GeneratorType): ("gi_frame", "gi_yieldfrom", "gi_code"),
    id(types.CoroutineType): ("cr_frame", "cr_await", "cr_code"),
    id(types.AsyncGeneratorType): ("ag_frame", "ag_await", "ag_code"),
    id(weakref.ref): ("__callback__",),
    id(type): ("__mro__", "__bases__"),
}
_TENSOR_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")


class _Names:
    """The names of an object's references, for the requested targets."""

    def __init__(self, wanted):
        self._wanted = wanted
        self.of = {}

    def wants(self, target):
        return id(target) in self._wanted

    def say(self, text, target):
        if id(target) in self._wanted:
            texts = self.of.setdefault(id(target), [])
            if len(texts) < NAMES and text not in texts:
                texts.append(text)

    def complete(self):
        return len(self.of) == len(self._wanted)


class _Namer:
    """Finds the names of references between objects. Runs no code of the program."""

    def __init__(self, tensors):
        self._tensors = tensors
        # By class id: the class itself, so that its id is not reused, and its attributes that are implemented in C.
        self._attributes = {}

    def names(self, held, wanted):
        """Returns the names of the references to the objects with these ids, which `held` is known to refer to.

        The references are known beforehand, so none is lost if reading an attribute makes Python move all attributes of
        `held` to a dictionary.
        """
        names, kind = _Names(wanted), type(held)
        names.say("__class__", kind)
        for base in kind.__mro__:
            _add_items(held, base, names)
        for base, name in self._of(kind):
            _attribute(held, base, name, name, names)
        if not names.complete() and self._tensors.is_tensor(kind):
            for name in _TENSOR_HOOKS:
                try:
                    names.say(name, self._tensors.attribute(held, name))
                except Exception:
                    pass
        if not names.complete():
            if kind is types.FunctionType:
                # Reading this attribute creates it, so it is read only if a name is still missing.
                _attribute(held, kind, "__annotations__", "__annotations__", names)
            if issubclass(kind, type):
                for attributes in gc.get_referents(_attributes_of(held)):
                    names.say("__dict__", attributes)
            else:
                attributes = _own_attributes(held)
                if type(attributes) is dict:
                    names.say("__dict__", attributes)
                    for name, value in itertools.islice(attributes.items(), ITEMS):
                        if names.wants(value):
                            names.say(_cut(name) if type(name) is str else _cut(f"[{_key(name)}]"), value)
        return names.of

    def _of(self, kind):
        known = self._attributes.get(id(kind))
        if known is None:
            found = [
                (base, name) for base in kind.__mro__ for name, attribute in list(_attributes_of(base).items())
                if name in _ATTRIBUTES.get(id(base), ()) or
                type(attribute) is types.MemberDescriptorType and name != "__dict__"
            ]
            known = self._attributes[id(kind)] = (kind, found)
        return known[1]


def _attributes_of(kind):
    """Returns the attributes that a class itself defines, whatever its metaclass returns."""
    return type.__dict__["__dict__"].__get__(kind)


def _attribute(held, base, name, text, names):
    """Adds the name of an attribute that the class `base` defines."""
    descriptor = _attributes_of(base).get(name)
    try:
        names.say(text, descriptor.__get__(held))
    except Exception:
        pass  # An empty slot, or an attribute that this version of Python does not have.


def _own_attributes(held):
    """Returns the dictionary of an object's attributes, if it has one. The access may create it."""
    for base in type(held).__mro__:
        descriptor = _attributes_of(base).get("__dict__")
        if type(descriptor) is types.GetSetDescriptorType or type(descriptor) is types.MemberDescriptorType:
            try:
                return descriptor.__get__(held)
            except Exception:
                return None
    return None


def _add_items(held, base, names):
    """Adds the names of items in built-in containers, read by the methods of the built-in class, not of a subclass."""
    if base is list or base is tuple:
        for index, item in enumerate(itertools.islice(base.__iter__(held), ITEMS)):
            names.say(f"[{index}]", item)
    elif base is dict:
        for key, value in itertools.islice(dict.items(held), ITEMS):
            if names.wants(value):
                names.say(_cut(f"[{_key(key)}]"), value)
            names.say("key", key)
    elif base is set or base is frozenset:
        for item in itertools.islice(base.__iter__(held), ITEMS):
            names.say("element", item)
    elif base is types.CellType:
        _attribute(held, base, "cell_contents", "cell_contents", names)
    elif base is types.FrameType:
        _locals(held, names)


def _locals(frame, names):
    if names.complete():
        return
    try:
        variables = frame.f_locals
        names.say("f_locals", variables)
        variables = dict(variables)
    except Exception:
        return
    shared = {*frame.f_code.co_cellvars, *frame.f_code.co_freevars}
    for name, value in itertools.islice(variables.items(), ITEMS):
        names.say(f"local {name}", value)
        if name in shared:
            # Variables that nested functions share are in cells, and the frame refers to the cells.
            for cell in gc.get_referents(frame):
                if type(cell) is types.CellType and any(inner is value for inner in gc.get_referents(cell)):
                    names.say(f"local {name}", cell)


# ---- Labels ----------------------------------------------------------------------------------------------------------


def _label(held, facts=None):
    kind = type(held)
    try:
        if issubclass(kind, _BASIC):
            return _cut(_basic(held))
        if issubclass(kind, types.FunctionType):
            return _cut(f"function\n{held.__name__}")
        if issubclass(kind, types.MethodType):
            function = held.__func__
            name = function.__qualname__ if type(function) in _FUNCTIONS else "<anonymous>"
            return _cut(f"instancemethod\n{name}")
        if issubclass(kind, list):
            return _cut(_sequence("[", list, held, "]"))
        if issubclass(kind, tuple):
            return _cut(_sequence("(", tuple, held, ")"))
        if issubclass(kind, dict):
            return f"dict[{dict.__len__(held)}]"
        if issubclass(kind, types.ModuleType):
            return _cut(f"module\n{types.ModuleType.__dict__['__dict__'].__get__(held).get('__name__', '?')}")
        if issubclass(kind, type):
            return _cut(f"type\n{_name(held)}")
        if issubclass(kind, weakref.ref):
            target = weakref.ref.__call__(held)
            return "weakref (dead referent)" if target is None else f"weakref to id {hex(id(target))}"
        if issubclass(kind, types.FrameType):
            file = held.f_code.co_filename
            file = file if len(file) <= 32 else "..." + file[-29:]
            return _cut(f"frame\n{file}:{held.f_lineno}")
        label = f"object\n{_module(kind)}.{_name(kind)}"
        return _cut(label if facts is None else f"{label} ({facts['shape']})")
    except Exception:
        return "object\n?"


_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType)


def _name(kind):
    return type.__dict__["__name__"].__get__(kind)


def _module(kind):
    module = type.__dict__["__module__"].__get__(kind)
    return module if type(module) is str else "?"


def _sequence(begin, base, held, end):
    length = base.__len__(held)
    items = [
        _basic(item) if issubclass(type(item), _BASIC) else _name(type(item))
        for item in itertools.islice(base.__iter__(held), 8)
    ]
    more = [] if length <= 8 else [f" ...{length - 8}"]
    return begin + ",".join(items + more) + end


def _basic(held):
    """Formats numbers and strings as Python does; long ones are truncated."""
    for base in _TEXTS:
        if issubclass(type(held), base):
            if base.__len__(held) > LENGTH:
                return base.__repr__(base.__getitem__(held, slice(LENGTH))) + "..."
            return base.__repr__(held)
    if issubclass(type(held), int) and type(held) is not bool:
        bits = int.bit_length(held)
        return int.__repr__(held) if bits <= 4 * LENGTH else f"int of {bits} bits"
    for base in _NUMBERS[1:]:
        if issubclass(type(held), base):
            return base.__repr__(held)
    return repr(held)


def _key(held, depth=3):
    """Formats a dictionary's key: basic keys by value, others by type, because formatting them would run program code."""
    kind = type(held)
    if issubclass(kind, _BASIC):
        return _basic(held)
    if issubclass(kind, type):
        return f"<class '{_module(held)}.{type.__dict__['__qualname__'].__get__(held)}'>"
    if kind is tuple and depth and len(held) <= 8:
        items = ", ".join(_key(item, depth - 1) for item in held)
        return f"({items},)" if len(held) == 1 else f"({items})"
    return f"<{_module(kind)}.{_name(kind)}>"


def _cut(text):
    text = text if len(text) <= LENGTH else text[:LENGTH - 3] + "..."
    # Lone surrogates, which UTF-8 cannot encode, are escaped.
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


# ---- Allocation stacks -----------------------------------------------------------------------------------------------

# Substrings of the names of functions and files that belong to the interpreter and PyTorch's dispatcher.
_NOISE = (
    "unwind::unwind", "CapturedTraceback::gather", "gather_with_cpp", "_start", "__libc_start_main", "PyEval_",
    "PyObject_", "PyFunction_",
)
_NOISY_FILES = (
    "core/boxing", "/Register", "/Redispatch", "pythonrun.c", "Modules/main.c", "Objects/call.c",
    "Objects/methodobject.c", "pycore_ceval.h", "ceval.c", "cpython/abstract.h",
)


def _remember_allocations():
    """Makes CUDA's allocator record the Python stacks of live blocks."""
    import torch

    try:
        if torch.cuda.is_available() and not torch._C._cuda_isHistoryEnabled():
            torch.cuda.memory._record_memory_history("state", context="state", stacks="python")
    except Exception as failure:  # Another allocator, or an old version of PyTorch.
        _say(f"where memory is allocated is not known: {failure}")


def _contexts(kind, wanted):
    """Yields (address, stack) for those addresses whose allocation the allocator of a kind of device has recorded."""
    import torch

    snapshot = getattr(getattr(torch, kind, None), "memory_snapshot", None)
    if snapshot is None:
        return
    try:
        try:
            segments = snapshot(include_traces=False)
        except TypeError:
            segments = snapshot()
    except Exception:  # Another allocator is in use.
        return
    for segment in segments:
        address = segment["address"]
        for block in segment["blocks"]:
            if block["state"] == "active_allocated" and address in wanted:
                history = block.get("history") or [{}]
                text = _stack(block.get("frames") or history[0].get("frames") or ())
                if text:
                    yield address, text
            address += block["size"]


def _stack(frames):
    return "\n".join(
        f"{frame['filename']}:{frame['line']}:{frame['name']}" for frame in frames
        if not any(part in frame["name"] for part in _NOISE)
        and not any(part in frame["filename"] for part in _NOISY_FILES)
    )


# ---- The command -----------------------------------------------------------------------------------------------------


def main(arguments):
    """Runs the command: observes a script from start to end. Returns the script's exit code."""
    parser = argparse.ArgumentParser(
        description="Runs a Python script and writes which reference cycles held device tensors.",
        epilog="Then: memtrack cycles cycles-1.json -o cycles-1.html",
    )
    parser.add_argument("--cpu", action="store_true", help="tensors on the processor count too")
    parser.add_argument("--folder", default=".", help="where to write cycles-1.json and so on (default: here)")
    parser.add_argument("--files", type=int, default=FILES, metavar="N", help=f"at most so many files (default: {FILES})")
    parser.add_argument("--no-history", action="store_true", help="do not have CUDA remember where memory is allocated")
    parser.add_argument("script", metavar="SCRIPT", help="the Python script")
    parser.add_argument("arguments", metavar="ARGUMENT", nargs=argparse.REMAINDER, help="what the script is called with")
    options = parser.parse_args(arguments)
    if not os.path.isfile(options.script):
        parser.error(f"{options.script}: no such file")
    if not os.path.isdir(options.folder):
        parser.error(f"{options.folder}: there is no such folder")
    if options.files < 1:
        parser.error("--files: at least 1")
    try:
        disarm = warn_tensor_cycles(options.folder, options.files, options.cpu, not options.no_history)
    except ImportError as failure:
        _say(f"{failure}: this Python has no PyTorch")
        return 3
    sys.argv = [options.script, *options.arguments]
    sys.path[0] = os.path.dirname(os.path.abspath(options.script))
    code = None
    try:
        # Objects in the script's module must not become garbage, so the module must stay alive.
        module = runpy.run_path(options.script, run_name="__main__")
        _collect_rest(module)
    except SystemExit as end:
        code = end.code
        _collect_rest(end)
    except BaseException as failure:
        _collect_rest(failure)
        raise
    finally:
        disarm()
    return code


def _collect_rest(_held):
    """Collects the garbage that no collection has found yet. The argument only keeps the script's objects alive."""
    for observer in list(_collector.observers):
        try:
            _collector.look_now(observer)
        except Exception as failure:
            _say(f"{type(failure).__name__}: {failure}")


if __name__ == "__main__":
    # The script may import this module under its usual name.
    sys.modules.setdefault("memtrack_cycles", sys.modules["__main__"])
    sys.exit(main(sys.argv[1:]))
