"""Object graphs by memtrack's script and by PyTorch's own `create_graph`, of the same objects, which must agree.

Runs with the Python of an environment that has PyTorch; `cycles.sh` makes one. Each program of `cycles_programs.py` runs
twice, and the collector keeps what it leaves: once for memtrack's script, once for PyTorch, because PyTorch
changes the objects that it looks at. OUT/NAME.json is the script's graph. With --oracle, also the programs of
`tests/oracle/data/cycles`, whose objects are kept alive.

What may differ, and is counted:

    named     PyTorch says `?`, the script knows the name
    found     a reference that PyTorch does not see, because by asking for an attribute's name it moved all attributes
    again     PyTorch repeats a reference of a container that holds an object more than once
    key       PyTorch prints a key in the words of its class, the script by the class's name

With --memtrack the command must then draw the script's graph as PyTorch's own functions draw it.
"""
import argparse
import gc
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections import Counter

HERE = os.path.dirname(os.path.abspath(__file__))
ORACLE = os.path.join(os.path.dirname(HERE), "oracle")


def script(memtrack, out):
    """The script that the command prints, or the checkout's, as a module."""
    path = os.path.join(out, "memtrack_cycles.py")
    with open(path, "wb") as file:
        if memtrack:
            file.write(subprocess.run([memtrack, "export-script", "--cycles"], check=True, capture_output=True).stdout)
        else:
            with open(os.path.join(HERE, "../../memtrack-cli/src/export/cycles.py"), "rb") as checkout:
                file.write(checkout.read())
    return module("memtrack_cycles", path)


def module(name, path):
    spec = importlib.util.spec_from_file_location(name, path)
    loaded = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def left_behind(program):
    """What the collector finds after a program has run."""
    gc.collect()
    program()
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    gc.set_debug(0)
    garbage = gc.garbage[:]
    gc.garbage.clear()
    return garbage


def theirs(objects, context):
    """PyTorch's graph of all objects, in the script's form."""
    import torch
    from torch.utils.viz import _cycles

    _cycles.is_cuda_tensor = lambda held: isinstance(held, torch.Tensor)
    nodes = _cycles.create_graph(objects, context=context, filter=lambda _: True)
    roots = [isinstance(held, torch.Tensor) for held in objects]
    return [
        {"label": node.label, "context": node.context, "root": root, "references": list(map(list, node.referrents))}
        for node, root in zip(nodes, roots)
    ]


def drawing(nodes):
    """The graph's DOT by PyTorch's own functions, of what leads to tensors."""
    from torch.utils.viz import _cycles

    holders = [[] for _ in nodes]
    for index, node in enumerate(nodes):
        for _, target in node["references"]:
            holders[target].append(index)
    kept, todo = set(), [index for index, node in enumerate(nodes) if node["root"]]
    while todo:
        index = todo.pop()
        if index not in kept:
            kept.add(index)
            todo += holders[index]
    number = {index: new for new, index in enumerate(sorted(kept))}
    return _cycles.to_dot([
        _cycles.Node(node["label"], node["context"], node["root"], [
            (text, number[target]) for text, target in node["references"] if target in number
        ])
        for index, node in enumerate(nodes) if index in number
    ])


def without_addresses(text):
    return re.sub(r"0x[0-9a-f]+", "0x", text)


def differences(ours, their):
    """Sentences about what must not differ, and how often something did that may."""
    bad, may = [], Counter()
    if len(ours) != len(their):
        return [f"{len(ours)} objects against {len(their)}"], may
    for index, (our, other) in enumerate(zip(ours, their)):
        for field in ("label", "context", "root"):
            left, right = our[field], other[field]
            if field == "label":
                left, right = without_addresses(left), without_addresses(right)
            if left != right:
                bad.append(f"{index}: {field} {left!r} against {right!r}")
        seen, known = Counter(), {}
        for text, target in other["references"]:
            seen[text, target] += 1
            known.setdefault(target, set()).add(text)
        may["again"] += sum(count - 1 for count in seen.values() if count > 1)
        mine = {}
        for text, target in our["references"]:
            if text in mine.setdefault(target, set()):
                bad.append(f"{index}: {text!r} to {target} twice")
            mine[target].add(text)
        for target in mine.keys() | known.keys():
            left, right = mine.get(target, set()), known.get(target, set())
            if left == right:
                continue
            where = f"{index} ({our['label']!r}) to {target} ({ours[target]['label']!r})"
            if not right:
                may["found"] += 1
            elif right == {"?"} and left:
                may["named"] += 1
            elif any(text.startswith("[<") for text in left - right):
                may["key"] += 1
            else:
                bad.append(f"{where}: {sorted(left)} against {sorted(right)}")
    return bad, +may


def reference(cycles):
    """The programs of the reference data by the script, and the reference graphs."""
    made = os.path.join(ORACLE, "make", "make_cycles.py")
    with open(made) as file:
        code = compile(file.read(), "make_cycles.py", "exec")
    names = {"__name__": "make_cycles", "__file__": made, "REEXEC": True}
    sys.modules["make_cycles"] = sys.modules["__main__"]
    exec(code, names)
    # The classes were made in the program that ran as such.
    names["Thing"].__module__ = "__main__"
    for build in names["SETS"]["stored"]:
        with open(os.path.join(ORACLE, "data", "cycles", build.__name__, "input.json")) as file:
            their = json.load(file)
        contexts = iter([node["context"] for node in their if node["root"]])
        gc.disable()
        names["__name__"] = "__main__"
        objects = build()
        ours = cycles.graph(objects, cpu=True, context=lambda _: next(contexts))
        gc.enable()
        yield f"oracle {build.__name__}", ours, their


def runs(options, cycles):
    """The name of each program, the script's graph, and PyTorch's."""
    sys.path.insert(0, HERE)
    from cycles_programs import PROGRAMS

    number = iter(range(1 << 30))

    def context(held):
        import torch

        return f"train.py:{next(number) % 100}:forward" if isinstance(held, torch.Tensor) else None

    for program in PROGRAMS:
        if options.names and program.__name__ not in options.names:
            continue
        number = iter(range(1 << 30))
        ours = cycles.graph(left_behind(program), cpu=True, context=context)
        number = iter(range(1 << 30))
        yield program.__name__, ours, theirs(left_behind(program), context)
    if options.oracle and sys.version_info[:2] != (3, 11):
        print("the reference graphs are of Python 3.11: left out")
    elif options.oracle:
        yield from reference(cycles)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", help="the folder for graphs")
    parser.add_argument("--memtrack", help="the command; without it nothing is drawn, and the script is the checkout's")
    parser.add_argument("--oracle", action="store_true", help="also the programs of tests/oracle")
    parser.add_argument("names", nargs="*", help="only these programs")
    options = parser.parse_intermixed_args()
    os.makedirs(options.out, exist_ok=True)
    cycles = script(options.memtrack, options.out)
    bad = done = 0
    for name, ours, their in runs(options, cycles):
        path = os.path.join(options.out, f"{name.replace(' ', '-')}.json")
        cycles.save(ours, path)
        found, may = differences(ours, their)
        if options.memtrack:
            command = [options.memtrack, "cycles", path, "-o", path[:-5] + ".dot", "--force"]
            drawn = subprocess.run(command, capture_output=True)
            if drawn.returncode != 0:
                found.append(f"memtrack: exit {drawn.returncode}: {drawn.stderr.decode(errors='replace').strip()}")
            else:
                with open(path[:-5] + ".dot", encoding="utf-8") as file:
                    found += [] if file.read() == drawing(ours) else ["memtrack draws it otherwise"]
        bad, done = bad + bool(found), done + 1
        told = ", ".join(f"{kind} {count}" for kind, count in sorted(may.items())) or "the same"
        print(f"{name:28} {len(ours):3} objects: {told}" + "".join(f"\n    {line}" for line in found))
    print(f"{done - bad} of {done} programs as PyTorch has them")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
