"""`memtrack cycles` finds and draws the same nodes as torch.utils.viz._cycles in every object graph.

For each cycles/NAME/input.json:
  memtrack cycles input.json -o X.dot   = graph.dot, byte for byte
  memtrack cycles input.json --nodes    prints the kept nodes, renumbered, as in nodes.json (compared as JSON)
  memtrack cycles input.json -o X.html  is a page that loads nothing from another site
"""
import json
import os
import re
import shutil
import tempfile

from common import arguments, finish, run

memtrack, roots = arguments(__doc__)
bad, n = [], 0
work = tempfile.mkdtemp(prefix="memtrack-cycles-")
for root in roots:
    base = os.path.join(root, "cycles")
    for name in sorted(os.listdir(base)):
        folder = os.path.join(base, name)
        graph = os.path.join(folder, "input.json")
        if not os.path.exists(graph):
            continue
        n += 3
        dot, page = os.path.join(work, name + ".dot"), os.path.join(work, name + ".html")
        code, out, err, _ = run([memtrack, "cycles", graph, "-o", dot])
        if not os.path.exists(dot) or open(dot, "rb").read() != open(os.path.join(folder, "graph.dot"), "rb").read():
            bad.append(f"differs: {name}: DOT (exit {code}) {err.decode(errors='replace').strip()[:160]}")
        code, out, err, _ = run([memtrack, "cycles", graph, "--nodes"])
        try:
            same = json.loads(out) == json.load(open(os.path.join(folder, "nodes.json")))
        except ValueError:
            same = False
        if not same:
            bad.append(f"differs: {name}: nodes (exit {code}) {err.decode(errors='replace').strip()[:160]}")
        code, out, err, _ = run([memtrack, "cycles", graph, "-o", page])
        text = open(page, "rb").read().decode("utf-8", "replace") if os.path.exists(page) else ""
        outside = re.findall(r"""(?:src|href)\s*=\s*["']?(?:https?:)?//[^"'\s>]+|@import|fetch\(\s*["']https?:""", text)
        if "<html" not in text.lower() or outside:
            bad.append(f"page: {name}: (exit {code}) {outside[:1] or 'no page'} {err.decode(errors='replace').strip()[:120]}")
shutil.rmtree(work)
finish(bad, f"{n - len(bad)} of {n} cycle answers right", not bad)
