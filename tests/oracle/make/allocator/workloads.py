"""Builders for allocator workloads (JSON Lines, see docs/FILES.md). Pure Python, no PyTorch."""
import gzip
import json
import os
import random

KB, MB, GB = 1 << 10, 1 << 20, 1 << 30


class W:
    def __init__(self, name, total=24 * GB, settings="", devices=1, fraction=None, seed=0):
        self.name = name
        cfg = {"op": "config", "devices": devices, "total_bytes": int(total), "settings": settings}
        if fraction is not None:
            cfg["fraction"] = fraction
        self.ops = [cfg]
        self.n = 0
        self.devices = devices
        self.rng = random.Random("%s/%s" % (name, seed))

    def op(self, op, **kw):
        self.ops.append(dict(op=op, **kw))

    def a(self, size, stream=0, device=0):
        self.n += 1
        kw = {"id": self.n, "size": int(size)}
        if stream:
            kw["stream"] = stream
        if device:
            kw["device"] = device
        self.op("alloc", **kw)
        return self.n

    def f(self, *ids):
        for i in ids:
            if isinstance(i, (list, tuple)):
                self.f(*i)
            else:
                self.op("free", id=i)

    def rs(self, i, stream):
        self.op("record_stream", id=i, stream=stream)

    def ready(self, b):
        self.op("events_ready", ready=b)

    def empty(self):
        self.op("empty_cache")

    def stats(self):
        self.op("stats")

    def snap(self):
        self.op("snapshot", file="%s-%d.pickle" % (self.name, len(self.ops)))

    def fraction(self, f, device=0):
        self.op("set_fraction", device=device, fraction=f)

    def settings(self, v):
        self.op("settings", value=v)

    def begin(self, pool, **kw):
        self.op("begin_pool", pool=pool, **kw)

    def end(self, pool, **kw):
        self.op("end_pool", pool=pool, **kw)

    def drop(self, pool, **kw):
        self.op("delete_pool", pool=pool, **kw)

    def write(self, folder):
        os.makedirs(folder, exist_ok=True)
        data = "".join(json.dumps(o, separators=(",", ":")) + "\n" for o in self.ops).encode()
        path = os.path.join(folder, self.name + ".workload.jsonl")
        if len(data) > 200 * KB:
            with open(path + ".gz", "wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as g:
                g.write(data)
        else:
            with open(path, "wb") as f:
                f.write(data)
        return path


def mixed_size(r, big=1.0):
    x = r.random()
    if x < 0.02:
        return r.choice([0, 1, 511, 512, 513, MB - 1, MB, MB + 1, 10 * MB - 1, 10 * MB, 10 * MB + 1])
    if x < 0.35:
        return int(2 ** r.uniform(0, 16))
    if x < 0.55:
        return int(2 ** r.uniform(16, 20.2))
    if x < 0.75:
        return int(2 ** r.uniform(20, 23.4))
    if x < 0.88:
        return int(2 ** r.uniform(23.2, 25.5) * big)
    if x < 0.95:
        return r.choice([2, 4, 6, 8, 12, 16, 20, 24, 32, 48, 64]) * MB
    return int(2 ** r.uniform(25, 28) * big)


def random_mix(w, nops, target, streams=(0,), p_record=0.05, p_empty=0.002, p_toggle=0.01, p_stats=0.003,
               big=1.0, devices=1, pools=0, fractions=(), p_reset=0.0005, settings=(), p_snap=0.0):
    """Random allocs and frees; the live requested bytes of each device stay near the target."""
    r = w.rng
    live = [dict() for _ in range(devices)]
    bytes_ = [0] * devices
    stack = []
    ready = True
    pool_live = {}
    created = 0
    while len(w.ops) < nops:
        x = r.random()
        d = r.randrange(devices)
        if x < p_empty:
            w.empty()
        elif x < p_empty + p_toggle:
            ready = not ready
            w.ready(ready)
        elif x < p_empty + p_toggle + p_stats:
            w.stats()
        elif x < p_empty + p_toggle + p_stats + p_reset:
            w.op(r.choice(["reset_peak", "reset_accumulated"]))
        elif x < p_empty + p_toggle + p_stats + p_reset + 0.004 and fractions:
            w.fraction(r.choice(fractions), d)
        elif x < p_empty + p_toggle + p_stats + p_reset + 0.006 and settings:
            w.settings(r.choice(settings))
        elif x < p_empty + p_toggle + p_stats + p_reset + 0.006 + p_snap:
            w.snap()
        elif pools and r.random() < 0.03:
            if stack and r.random() < 0.55:
                p = stack.pop()
                w.end(p)
            elif len(stack) < 2:
                if pool_live and r.random() < 0.6:
                    p = r.choice(sorted(pool_live))
                elif created < pools:
                    created += 1
                    p = created
                    pool_live[p] = dict(use_on_oom=r.random() < 0.3, no_split=r.random() < 0.2)
                else:
                    continue
                if p in stack:
                    continue
                w.begin(p, **pool_live[p])
                stack.append(p)
            elif pool_live:
                cand = [p for p in sorted(pool_live) if p not in stack]
                if cand:
                    p = r.choice(cand)
                    del pool_live[p]
                    w.drop(p)
        else:
            frac = bytes_[d] / target
            if live[d] and r.random() < (0.15 + 0.35 * frac if frac < 1 else 0.5 + 0.3 * min(frac - 1, 1)):
                k = r.choice(list(live[d])[-60:]) if r.random() < 0.7 else r.choice(list(live[d]))
                w.f(k)
                bytes_[d] -= live[d].pop(k)
            elif live[d] and r.random() < p_record:
                w.rs(r.choice(list(live[d])[-40:]), r.choice(streams))
            else:
                n = mixed_size(r, big)
                k = w.a(n, r.choice(streams), d)
                live[d][k] = n
                bytes_[d] += n
    while stack:
        w.end(stack.pop())
    w.stats()
    return live


def transformer(w, steps, layers=6, hidden=512, batch=4, seqs=(256, 384, 512), vocab=8000, comm=0, stats_every=2, ckpt=False,
                max_ops=None, elem=2):
    r = w.rng
    h = hidden
    shapes = []
    for _ in range(layers):
        shapes += [3 * h * h, 3 * h, h * h, h, 4 * h * h, 4 * h, 4 * h * h, h, h, h, h, h]
    shapes += [vocab * h, h, h]
    params = [w.a(n * elem) for n in shapes]
    states = []
    for st in range(steps):
        if max_ops and len(w.ops) > max_ops:
            break
        s = r.choice(seqs)
        b = batch
        t = b * s
        inp = [w.a(t * 8), w.a(t * 8)]
        x = w.a(t * h * elem)
        saved = []
        for l in range(layers):
            y = w.a(t * h * elem)                         # layer norm
            mean, rstd = w.a(t * 4), w.a(t * 4)
            qkv = w.a(t * 3 * h * elem)
            tmp = w.a(t * h * elem)
            att = w.a(t * h * elem)
            lse = w.a(b * (h // 64) * s * 4)
            w.f(tmp)
            proj = w.a(t * h * elem)
            mask = w.a(t * h)
            res = w.a(t * h * elem)
            w.f(proj)
            y2 = w.a(t * h * elem)
            m2 = [w.a(t * 4), w.a(t * 4)]
            up = w.a(t * 4 * h * elem)
            act = w.a(t * 4 * h * elem)
            down = w.a(t * h * elem)
            res2 = w.a(t * h * elem)
            w.f(down)
            blk = [x, y, mean, rstd, qkv, att, lse, mask, res, y2, m2, up, act]
            if ckpt and l % 2 == 0:
                w.f(blk[1:])
                blk = [x]
            saved.append(blk)
            x = res2
        logits = w.a(t * vocab * elem)
        lsm = w.a(t * vocab * 4)
        loss = w.a(4)
        g = w.a(t * vocab * elem)
        w.f(lsm, logits)
        gx = w.a(t * h * elem)
        grads = {len(shapes) - 3: w.a(shapes[-3] * elem)}
        w.f(g, x)
        pend = []
        for l in reversed(range(layers)):
            blk = saved.pop()
            if len(blk) == 1:
                extra = [w.a(t * 4 * h * elem), w.a(t * 4 * h * elem), w.a(t * 3 * h * elem)]
            else:
                extra = []
            gact = w.a(t * 4 * h * elem)
            for j in (7, 6, 5, 4, 11, 10, 9, 8):
                grads[l * 12 + j] = w.a(shapes[l * 12 + j] * elem)
            g2 = w.a(t * h * elem)
            w.f(gact, gx)
            gqkv = w.a(t * 3 * h * elem)
            ws = w.a(r.choice([32 * KB, 1 * MB + 4096, 8 * MB + 128]))
            for j in (3, 2, 1, 0):
                grads[l * 12 + j] = w.a(shapes[l * 12 + j] * elem)
            w.f(ws)
            gx = w.a(t * h * elem)
            w.f(gqkv, g2, extra, blk)
            if comm:
                bucket = w.a(sum(shapes[l * 12:l * 12 + 12]) * elem)
                w.rs(bucket, comm)
                pend.append(bucket)
                if len(pend) > 1:
                    w.f(pend.pop(0))
        w.f(gx, inp, loss)
        w.f(pend)
        if comm and st % 3 == 1:
            w.ready(False)
        if comm and st % 3 == 2:
            w.ready(True)
        if not states:
            for n in shapes:
                states.append([w.a(n * 4), w.a(n * 4), w.a(4)])
        tmps = []
        for n in shapes:
            tmps.append(w.a(n * 4))
            if len(tmps) > 8:
                w.f(tmps.pop(0))
        w.f(tmps)
        w.f([grads[k] for k in sorted(grads)])
        if stats_every and st % stats_every == stats_every - 1:
            w.stats()
    if comm:
        w.ready(True)
    return params, states


def cnn(w, steps, batch=16, size=64, widths=(64, 128, 256, 512), stats_every=4, max_ops=None):
    r = w.rng
    convs = []
    c = 3
    for k in widths:
        convs += [(c, k, 1), (k, k, 1), (k, k, 2)]
        c = k
    params = [w.a(a * b * 9 * 4) for a, b, _ in convs] + [w.a(b * 4) for _, b, _ in convs for _ in range(4)]
    mom = [w.a(a * b * 9 * 4) for a, b, _ in convs]
    for st in range(steps):
        if max_ops and len(w.ops) > max_ops:
            break
        hw = size if r.random() < 0.7 else r.choice([size // 2, size * 3 // 4, size + 8])
        b = batch if r.random() < 0.9 else r.randrange(1, batch)
        x = w.a(b * 3 * hw * hw * 4)
        lab = w.a(b * 8)
        acts = []
        s = hw
        for ci, co, stride in convs:
            ws = w.a(r.choice([512, 3 * MB + 777, 9 * MB, 17 * MB, 64 * MB + 12, 256 * KB]))
            s2 = max(1, s // stride)
            y = w.a(b * co * s2 * s2 * 4)
            w.f(ws)
            bn = [w.a(co * 4), w.a(co * 4), w.a(b * co * s2 * s2 * 4)]
            acts.append([x, y, bn])
            x = w.a(b * co * s2 * s2 * 4)
            s = s2
        head = [w.a(b * 1000 * 4), w.a(b * 1000 * 4), w.a(4)]
        g = w.a(b * convs[-1][1] * s * s * 4)
        w.f(head, x)
        grads = []
        for (ci, co, stride), a in zip(reversed(convs), reversed(acts)):
            ws = w.a(r.choice([512, 3 * MB + 777, 9 * MB, 33 * MB, 256 * KB, 120 * MB]))
            grads.append(w.a(ci * co * 9 * 4))
            s = s * stride
            g2 = w.a(max(1, b * ci * s * s * 4))
            w.f(ws, g, a)
            g = g2
        w.f(g, lab)
        w.f(grads)
        if stats_every and st % stats_every == stats_every - 1:
            w.stats()
    return params, mom


def kvcache(w, tokens, layers=12, heads=12, dim=64, max_live=6, growth="cat", stats_every=50, elem=2, max_ops=None):
    """An inference server: requests arrive, and each decode step replaces every layer's K and V with a longer copy
    (growth=cat) or extends them by chunks of 256 tokens (growth=chunk)."""
    r = w.rng
    h = heads * dim
    for _ in range(layers):
        for n in (3 * h * h, h * h, 4 * h * h, 4 * h * h, h, h):
            w.a(n * elem)
    reqs = []
    done = 0
    for tok in range(tokens):
        if max_ops and len(w.ops) > max_ops:
            break
        if len(reqs) < max_live and (not reqs or r.random() < 0.15):
            n = int(2 ** r.uniform(4, 11))
            x = w.a(n * h * elem)
            kv = []
            for _ in range(layers):
                q = w.a(n * 3 * h * elem)
                cap = n if growth == "cat" else (n + 255) // 256 * 256
                kv.append([w.a(cap * h * elem), w.a(cap * h * elem)])
                att = w.a(n * h * elem)
                mlp = w.a(n * 4 * h * elem)
                w.f(q, att, x)
                x = w.a(n * h * elem)
                w.f(mlp)
            w.f(x)
            reqs.append([n, r.randrange(8, 120), kv])
        b = len(reqs)
        x = w.a(b * h * elem)
        for l in range(layers):
            q = w.a(b * 3 * h * elem)
            for q_ in reqs:
                n = q_[0] + 1
                if growth == "cat" or n % 256 == 0:
                    cap = n if growth == "cat" else n + 256
                    for j in (0, 1):
                        new = w.a(cap * h * elem)
                        w.f(q_[2][l][j])
                        q_[2][l][j] = new
            s = w.a(b * heads * max(q_[0] for q_ in reqs) * elem)
            y = w.a(b * h * elem)
            w.f(s, q, x)
            x = y
        lg = w.a(b * 32000 * 4)
        pr = w.a(b * 32000 * 4)
        w.f(lg, pr, x)
        for q_ in reqs:
            q_[0] += 1
            q_[1] -= 1
        for q_ in [z for z in reqs if z[1] <= 0]:
            w.f(q_[2])
            reqs.remove(q_)
            done += 1
            if done % 7 == 0:
                w.empty()
        if stats_every and tok % stats_every == stats_every - 1:
            w.stats()
    w.stats()
