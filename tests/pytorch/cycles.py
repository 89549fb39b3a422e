"""Compares object graphs of memtrack's script and of PyTorch's `create_graph`, of the same objects, which must agree.

Runs with the Python of an environment that has PyTorch; `cycles.sh` creates one. Each program of `cycles_programs.py` runs
twice, and the collector keeps its garbage: once for memtrack's script, once for PyTorch, because PyTorch changes the objects
that it visits. OUT/NAME.json is the script's graph. With --oracle, also the programs of `tests/oracle/data/cycles`, whose
objects are kept alive.

Accepted differences, which are counted:

    named     PyTorch prints `?`, the script knows the name
    found     a reference that PyTorch misses, because its look-up of an attribute's name moved all attributes
    again     PyTorch repeats a reference of a container that contains an object more than once
    key       PyTorch prints a key with the `repr` of its class, the script with the class's name

With --memtrack the command must then draw the script's graph as PyTorch's functions draw it.
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
    """Returns the script that the command prints, or the checkout's, as a module."""
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
    """Returns the garbage that the collector finds after a program has run."""
    gc.collect()
    program()
    gc.set_debug(gc.DEBUG_SAVEALL)
    gc.collect()
    gc.set_debug(0)
    garbage = gc.garbage[:]
    gc.garbage.clear()
    return garbage


def pytorch_graph(objects, context):
    """Returns PyTorch's graph of all objects, in the script's form."""
    import torch
    from torch.utils.viz import _cycles

    _cycles.is_cuda_tensor = lambda value: isinstance(value, torch.Tensor)
    nodes = _cycles.create_graph(objects, context=context, filter=lambda _: True)
    roots = [isinstance(value, torch.Tensor) for value in objects]
    return [
        {"label": node.label, "context": node.context, "root": root, "references": list(map(list, node.referrents))}
        for node, root in zip(nodes, roots)
    ]


def drawing(nodes):
    """Returns the DOT of PyTorch's functions for the objects that lead to tensors."""
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


def differences(script_nodes, pytorch_nodes):
    """Returns sentences about the differences, and the counts of the accepted ones."""
    bad, accepted = [], Counter()
    if len(script_nodes) != len(pytorch_nodes):
        return [f"{len(script_nodes)} objects against {len(pytorch_nodes)}"], accepted
    for index, (node, other) in enumerate(zip(script_nodes, pytorch_nodes)):
        for field in ("label", "context", "root"):
            left, right = node[field], other[field]
            if field == "label":
                left, right = without_addresses(left), without_addresses(right)
            if left != right:
                bad.append(f"{index}: {field} {left!r} against {right!r}")
        seen, pytorch_texts = Counter(), {}
        for text, target in other["references"]:
            seen[text, target] += 1
            pytorch_texts.setdefault(target, set()).add(text)
        accepted["again"] += sum(count - 1 for count in seen.values() if count > 1)
        script_texts = {}
        for text, target in node["references"]:
            if text in script_texts.setdefault(target, set()):
                bad.append(f"{index}: {text!r} to {target} twice")
            script_texts[target].add(text)
        for target in script_texts.keys() | pytorch_texts.keys():
            left, right = script_texts.get(target, set()), pytorch_texts.get(target, set())
            if left == right:
                continue
            where = f"{index} ({node['label']!r}) to {target} ({script_nodes[target]['label']!r})"
            if not right:
                accepted["found"] += 1
            elif right == {"?"} and left:
                accepted["named"] += 1
            elif any(text.startswith("[<") for text in left - right):
                accepted["key"] += 1
            else:
                bad.append(f"{where}: {sorted(left)} against {sorted(right)}")
    return bad, +accepted


def reference(cycles):
    """Returns the script's graphs of the programs of the reference data, and the reference graphs."""
    made = os.path.join(ORACLE, "make", "make_cycles.py")
    with open(made) as file:
        code = compile(file.read(), "make_cycles.py", "exec")
    names = {"__name__": "make_cycles", "__file__": made, "REEXEC": True}
    sys.modules["make_cycles"] = sys.modules["__main__"]
    exec(code, names)
    # When the reference graphs were made, the classes belonged to `__main__`.
    names["Thing"].__module__ = "__main__"
    for build in names["SETS"]["stored"]:
        with open(os.path.join(ORACLE, "data", "cycles", build.__name__, "input.json")) as file:
            reference_nodes = json.load(file)
        contexts = iter([node["context"] for node in reference_nodes if node["root"]])
        gc.disable()
        names["__name__"] = "__main__"
        objects = build()
        nodes = cycles.graph(objects, cpu=True, context=lambda _: next(contexts))
        gc.enable()
        yield f"oracle {build.__name__}", nodes, reference_nodes


def runs(options, cycles):
    """Yields the name of each program, the script's graph, and PyTorch's."""
    sys.path.insert(0, HERE)
    from cycles_programs import PROGRAMS

    number = iter(range(1 << 30))

    def context(value):
        import torch

        return f"train.py:{next(number) % 100}:forward" if isinstance(value, torch.Tensor) else None

    for program in PROGRAMS:
        if options.names and program.__name__ not in options.names:
            continue
        number = iter(range(1 << 30))
        nodes = cycles.graph(left_behind(program), cpu=True, context=context)
        number = iter(range(1 << 30))
        yield program.__name__, nodes, pytorch_graph(left_behind(program), context)
    if options.oracle and sys.version_info[:2] != (3, 11):
        print("left out: the reference graphs, which need Python 3.11")
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
    for name, script_nodes, pytorch_nodes in runs(options, cycles):
        path = os.path.join(options.out, f"{name.replace(' ', '-')}.json")
        cycles.save(script_nodes, path)
        found, accepted = differences(script_nodes, pytorch_nodes)
        if options.memtrack:
            command = [options.memtrack, "cycles", path, "-o", path[:-5] + ".dot", "--force"]
            drawn = subprocess.run(command, capture_output=True)
            if drawn.returncode != 0:
                found.append(f"memtrack: exit {drawn.returncode}: {drawn.stderr.decode(errors='replace').strip()}")
            else:
                with open(path[:-5] + ".dot", encoding="utf-8") as file:
                    found += [] if file.read() == drawing(script_nodes) else ["memtrack draws it differently"]
        bad, done = bad + bool(found), done + 1
        summary = ", ".join(f"{kind} {count}" for kind, count in sorted(accepted.items())) or "equal"
        print(f"{name:28} {len(script_nodes):3} objects: {summary}" + "".join(f"\n    {line}" for line in found))
    print(f"{done - bad} of {done} programs agree with PyTorch")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
