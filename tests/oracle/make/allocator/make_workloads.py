"""Writes the workloads:  make_workloads.py FOLDER"""
import sys
from workloads import GB, KB, MB, W, cnn, kvcache, random_mix, transformer

out = []


def new(name, *a, **k):
    w = W(name, *a, **k)
    out.append(w)
    return w


EDGE = [0, 1, 2, 511, 512, 513, 1000, 1023, 1024, 1025, 4096, 65535, MB - 513, MB - 512, MB - 511, MB - 1, MB, MB + 1,
        MB + 512, MB + 513, 2 * MB - 1, 2 * MB, 2 * MB + 1, 5 * MB, 10 * MB - 513, 10 * MB - 512, 10 * MB - 511, 10 * MB - 1,
        10 * MB, 10 * MB + 1, 12 * MB - 1, 12 * MB, 12 * MB + 1, 19 * MB, 20 * MB - 1, 20 * MB, 20 * MB + 1, 45 * MB,
        45 * MB + 1, 46 * MB, 250 * MB + 5, 1 * GB - 1, 1 * GB, 1 * GB + 1]

w = new("sizes-fresh")                      # every size on an empty cache
for n in EDGE:
    i = w.a(n); w.stats() if n in (513, MB, MB + 1, 45 * MB) else None
    w.f(i); w.empty()
w.stats()

w = new("sizes-kept")                       # the same sizes side by side, then freed in an irregular order
ids = [w.a(n) for n in EDGE]
w.stats(); w.snap()
for k in range(0, len(ids), 2): w.f(ids[k])
w.stats(); w.snap()
for k in range(1, len(ids), 2): w.f(ids[k])
w.stats(); w.empty(); w.stats()

w = new("split-rules")
a = w.a(20 * MB - 512); w.f(a)              # large: remainder 512 stays inside
a = w.a(12 * MB); b = w.a(MB + 512); w.snap(); w.f(a, b); w.snap(); w.empty()
for rem in (512, MB - 512, MB, MB + 512, MB + 1024, 2 * MB):
    a = w.a(30 * MB); w.f(a)
    b = w.a(30 * MB - rem); w.snap(); w.stats(); w.f(b); w.empty()
for rem in (512, 1024, MB):                 # small pool
    a = w.a(MB); b = w.a(MB); w.f(a); c = w.a(MB - rem); w.snap(); w.f(b, c); w.empty()
a = [w.a(2 * MB) for _ in range(10)]        # merges: prev, next, both, none
w.f(a[1]); w.stats(); w.f(a[3]); w.stats(); w.f(a[2]); w.stats(); w.f(a[9]); w.f(a[8]); w.f(a[5]); w.f(a[4]); w.stats(); w.snap()
c = w.a(10 * MB); d = w.a(9 * MB); e = w.a(3 * MB); w.stats(); w.snap()
w.f(a[0], a[6], a[7], c, d, e); w.stats(); w.empty(); w.stats()

w = new("best-fit")
k = [w.a(n) for n in (30 * MB, 14 * MB, 22 * MB, 18 * MB, 26 * MB, 18 * MB, 14 * MB)]
w.f(k)
for n in (15 * MB, 18 * MB, 17 * MB + 1, 13 * MB, 11 * MB, 10 * MB, 21 * MB, 40 * MB, 24 * MB, 3 * MB, MB + 1, 25 * MB + 5): w.a(n)
w.snap(); w.stats()
s = [w.a(n) for n in (3000, 512, 9000, 2048, 512, 9000, 700, 9000, 512, 1500, 512)]
w.f(s[0], s[2], s[5], s[7], s[9]); w.snap()
for n in (9000, 8000, 1500, 1024, 8704, 9216, 512, 600, 3072): w.a(n)
w.snap(); w.stats()

w = new("streams")
a = w.a(8 * MB, 1); b = w.a(8 * MB, 2); c = w.a(8 * MB); w.f(a, b, c); w.snap()
w.a(4 * MB, 3); x = w.a(4 * MB, 1); w.a(4 * MB, 2); w.a(4 * MB); w.a(100, 1); w.a(100, 2); w.a(100)
w.stats(); w.snap(); w.f(x); w.empty(); w.snap()
y = [w.a(30 * MB, s) for s in (4, 3, 2, 1, 0)]; w.f(y); w.a(28 * MB, 2); w.stats(); w.empty(); w.snap(); w.stats()

w = new("pending-frees")
w.ready(False)
a = w.a(3000); w.rs(a, 1); w.f(a); w.stats(); w.snap()
b = w.a(3000); w.rs(b, 0); w.f(b); w.stats()                       # the block's own stream: completes at once
c = w.a(5 * MB, 2); w.rs(c, 1); w.rs(c, 3); w.rs(c, 1); w.f(c); w.stats()
d = w.a(5 * MB, 2); w.stats(); w.snap(); w.ready(True); w.stats()
e = w.a(7000); w.stats(); w.snap()
f = [w.a(4 * MB) for _ in range(6)]
for i in f: w.rs(i, 1 + i % 2)
w.ready(False); w.f(f[::-1]); g = w.a(4 * MB); w.stats(); w.empty(); w.stats(); w.snap()
h = w.a(100, 1); w.rs(h, 2); w.f(h); w.f(g, d, e); w.stats(); w.ready(True); w.snap(); z = w.a(0); w.stats(); w.a(1, device=0); w.stats()
i = w.a(64 * MB); w.rs(i, 3); w.f(i); w.stats(); w.empty(); w.stats(); w.snap()

w = new("empty-cache-split")
a = [w.a(3 * MB) for _ in range(13)]; b = [w.a(200 * KB) for _ in range(30)]; c = [w.a(33 * MB) for _ in range(3)]
w.f(a[::2], b[1::2], c[1]); w.empty(); w.stats(); w.snap()
w.f(a[1:6:2]); w.empty(); w.stats(); w.f(a[7::2]); w.empty(); w.stats(); w.f(b[::2], c[0]); w.empty(); w.snap(); w.stats(); w.f(c[2]); w.empty(); w.stats()

w = new("max-split", settings="max_split_size_mb:100")
a = w.a(200 * MB); b = w.a(99 * MB); c = w.a(100 * MB); d = w.a(101 * MB); w.stats(); w.f(a, b, c, d); w.stats()
w.a(50 * MB); w.a(100 * MB - 512); w.a(90 * MB); w.snap()          # never from an oversize block
e = w.a(185 * MB); w.snap(); w.f(e); e = w.a(180 * MB); w.snap(); w.f(e); e = w.a(180 * MB - 512); w.snap(); w.stats()
f = w.a(120 * MB); w.f(f, e); w.stats(); g = w.a(119 * MB); h = w.a(100 * MB); w.stats(); w.snap(); w.empty(); w.stats()

w = new("max-split-rounding", settings="max_split_size_mb:40,max_non_split_rounding_mb:64")
for big, small in ((200, 137), (200, 136), (200, 135), (104, 41), (103, 40), (90, 39)):
    a = w.a(big * MB); w.f(a); b = w.a(small * MB); w.snap(); w.f(b); w.stats(); w.empty()

w = new("max-split-release", total=2 * GB, settings="max_split_size_mb:64")
a = [w.a(n * MB) for n in (300, 260, 220, 180, 140, 100)]; k = w.a(500 * MB); w.f(a); w.stats()
b = w.a(350 * MB); w.stats(); w.snap()                             # walk down
c = w.a(200 * MB); w.stats(); d = w.a(400 * MB, 1); w.stats(); w.snap()
w.f(c); e = w.a(270 * MB); w.stats(); w.f(b, e); g = w.a(340 * MB); w.stats(); h = w.a(30 * MB); i = w.a(300 * MB); w.stats(); w.snap()
j = w.a(900 * MB); w.stats(); w.f(h, i); j = w.a(1200 * MB); w.stats(); w.snap()

w = new("gc-threshold", total=16 * GB, settings="garbage_collection_threshold:0.5", fraction=0.5)
x = [w.a((1 + i) * GB // 2) for i in range(4)]; w.f(x); w.stats()
for n in (3, 5, 1, 6):
    y = w.a(n * GB // 2 + 512); w.stats(); w.f(y)
z = [w.a(n * MB) for n in (100, 300, 500, 700, 900, 1100)]; w.f(z[::2])
for n in (800, 50, 1300, 20, 650, 1500, 200): q = w.a(n * MB); w.f(q); w.snap()
w.stats(); w.fraction(1.0); q = w.a(6 * GB); w.stats(); w.fraction(0.4); w.f(q); q = w.a(5 * GB); w.stats(); w.snap()

for v in ("1", "2", "4", "8", "32"):
    if v in ("1", "8"): continue
    w = new("roundup-" + v, settings="roundup_power2_divisions:" + v, total=80 * GB)
    for n in EDGE + [1200, 1500, 1537, 2049, 3000, 5000, 9999, 70 * MB, 100 * MB + 1, 300 * MB, 3 * GB + 1, 5 * GB + 12345]:
        i = w.a(n)
        if n % 3 == 0: w.f(i)
    w.stats(); w.snap(); w.empty(); w.stats()

w = new("roundup-list", settings="roundup_power2_divisions:[256:1,512:2,1024:4,>:8]", total=80 * GB)
for n in (700, 300 * KB + 1, 3 * MB, 5 * MB + 1, 65 * MB, 129 * MB, 200 * MB + 7, 255 * MB, 256 * MB + 1, 300 * MB, 400 * MB,
          511 * MB, 513 * MB, 700 * MB, 800 * MB, 1023 * MB, 1025 * MB, 1100 * MB, 1300 * MB, 2047 * MB, 2049 * MB, 2300 * MB, 3000 * MB, 5000 * MB, 9000 * MB):
    w.f(w.a(n)); w.empty()
w.stats(); w.settings("roundup_power2_divisions:[1:4,8:2,64:16]")
for n in (700, 1500, 3 * MB + 5, 5 * MB + 1, 9 * MB, 13 * MB, 20 * MB, 40 * MB + 3, 65 * MB, 70 * MB, 100 * MB, 150 * MB, 300 * MB, 600 * MB + 1, 1300 * MB): w.a(n)
w.stats(); w.snap()

w = new("fraction-oom", total=4 * GB, fraction=0.5)
a = w.a(1 * GB); b = w.a(900 * MB); c = w.a(200 * MB); d = w.a(100 * MB); e = w.a(30 * MB); f = w.a(2 * MB); g = w.a(100); w.stats()
w.f(c); w.f(a); h = w.a(1100 * MB); i = w.a(1200 * MB); w.stats(); w.fraction(0.25); j = w.a(10); k = w.a(50 * MB); w.f(h); l = w.a(50 * MB); w.stats()
w.fraction(0.0); m = w.a(1); n = w.a(400 * MB); w.fraction(1.0); o = w.a(100 * MB); p = w.a(5 * GB); w.fraction(-0.1); w.fraction(1.5); w.fraction(0.999999999); w.a(3 * GB); w.stats(); w.snap()

w = new("retry-release", total=1 * GB)
a = [w.a(100 * MB) for _ in range(8)]; w.f(a[:4]); b = w.a(350 * MB); w.stats(); w.f(a[4:]); c = w.a(700 * MB); d = w.a(600 * MB); w.stats()
w.f(b); e = w.a(900 * MB); w.stats(); w.snap(); w.ready(False)
f = [w.a(90 * MB) for _ in range(3)]
for i in f: w.rs(i, 1)
w.f(f, c, d); w.stats(); g = w.a(800 * MB); w.stats(); w.snap(); h = w.a(300 * MB); w.stats()      # pending frees are synchronised by the retry
w.f(g, e); w.stats(); s = [w.a(60 * MB, k % 3) for k in range(14)]; w.f(s[1::2]); t = w.a(400 * MB, 2); w.stats(); w.snap()

w = new("oom-fragmented", total=512 * MB)
a = [w.a(2 * MB) for _ in range(240)]; w.f(a[::2]); w.stats(); b = w.a(4 * MB); w.stats(); c = w.a(40 * MB); d = w.a(2 * MB); e = w.a(9 * MB); w.stats(); w.snap()
w.f(a[1::4]); f = w.a(60 * MB); w.stats(); w.f(a[3::4]); g = w.a(400 * MB); h = w.a(200 * MB); w.stats(); w.snap()

w = new("expandable-basic", settings="expandable_segments:True")
a = w.a(3 * MB); b = w.a(30 * MB); c = w.a(100); d = w.a(45 * MB); w.stats(); w.snap(); w.f(b); w.empty(); w.stats(); w.snap()
b = w.a(5 * MB); w.snap(); f = w.a(200 * MB); g = w.a(7 * MB); w.f(f); w.empty(); w.stats(); w.snap(); h = w.a(150 * MB); i = w.a(60 * MB); w.snap(); w.stats()
w.f(d); w.empty(); j = w.a(70 * MB); w.snap(); w.f(a, b, c, g, h, i, j); w.stats(); w.empty(); w.stats(); w.snap(); k = w.a(1); w.snap(); w.stats()

w = new("expandable-sizes", settings="expandable_segments:True")
ids = [w.a(n) for n in EDGE]; w.stats(); w.snap()
w.f(ids[::3]); w.stats(); w.empty(); w.stats(); w.snap(); w.f(ids[1::3]); w.empty(); w.snap(); ids2 = [w.a(n) for n in EDGE[::-1]]; w.snap(); w.stats(); w.f(ids[2::3], ids2); w.empty(); w.stats(); w.snap()

w = new("expandable-holes", settings="expandable_segments:True", total=2 * GB)
a = [w.a(20 * MB) for _ in range(20)]; w.f(a[3], a[4], a[10], a[12:15]); w.empty(); w.snap(); w.stats()
b = w.a(35 * MB); w.snap(); c = w.a(55 * MB); w.snap(); d = w.a(25 * MB); w.snap(); w.f(a[5]); e = w.a(22 * MB); w.snap(); f = w.a(41 * MB); w.snap(); w.stats()
w.f(a[0], a[1]); w.empty(); g = w.a(40 * MB + 512); h = w.a(40 * MB - 512); w.snap(); w.f(b, c, g); w.empty(); i = [w.a(n * MB) for n in (90, 10, 15, 5, 60)]; w.snap(); w.stats()
s = [w.a(500 * KB, 1) for _ in range(20)]; w.f(s[2:11]); w.empty(); w.snap(); t = [w.a(n * KB, 1) for n in (900, 1024, 100, 1000, 1000)]; w.snap(); w.stats()

w = new("expandable-oom", settings="expandable_segments:True", total=1 * GB)
a = w.a(500 * MB); b = w.a(300 * MB); c = w.a(400 * MB); w.stats(); w.snap(); w.f(a); d = w.a(510 * MB); w.stats(); w.snap(); e = w.a(600 * MB); w.stats(); w.snap()
w.f(b); f = w.a(200 * MB, 1); w.stats(); g = w.a(300 * MB, 1); w.stats(); w.snap(); w.fraction(0.8); h = w.a(100 * MB); w.f(g); i = w.a(290 * MB); j = w.a(9 * GB); w.stats(); w.snap()

w = new("expandable-streams-pending", settings="expandable_segments:True,large_segment_size_mb:32")
w.ready(False); a = w.a(40 * MB, 1); b = w.a(10 * MB); c = w.a(70 * MB, 2); w.rs(a, 2); w.rs(b, 1); w.f(a, b); w.stats(); d = w.a(10 * MB); e = w.a(40 * MB, 1); w.snap(); w.empty(); w.stats(); w.snap()
w.rs(c, 0); w.f(c); w.ready(True); f = w.a(65 * MB, 2); w.snap(); w.f(d, e, f); w.empty(); w.stats(); w.snap()

w = new("expandable-toggle", total=3 * GB)
a = w.a(30 * MB); b = w.a(3 * MB); w.settings("expandable_segments:True"); w.f(a); c = w.a(30 * MB); d = w.a(25 * MB); e = w.a(100 * MB); w.snap(); w.f(c, e); w.stats()
f = w.a(28 * MB); g = w.a(15 * MB); w.snap(); w.settings("expandable_segments:False"); h = w.a(100 * MB); i = w.a(10 * MB); j = w.a(12 * MB); w.snap(); w.f(d, f, g); k = w.a(20 * MB); w.snap(); w.empty(); w.stats(); w.snap()
w.settings("expandable_segments:True"); l = w.a(90 * MB); m = w.a(2 * MB); w.f(b, h, i, j, k); w.snap(); w.empty(); w.snap(); w.stats()

w = new("mempool")
x = w.a(100); w.begin(1); y = w.a(100); z = w.a(5 * MB); w.f(z); v = w.a(2 * MB, 1); w.end(1); u = w.a(2 * MB); w.stats(); w.snap(); w.f(y); w.empty(); w.stats(); w.snap()
w.begin(2); p = w.a(30 * MB); w.begin(1); q = w.a(4 * MB); w.end(1); r_ = w.a(8 * MB); w.end(2); w.stats(); w.snap(); w.f(p, q); w.drop(1); w.stats(); w.snap(); w.f(v); w.stats(); w.empty(); w.stats(); w.snap()
w.f(r_); w.begin(2); s = w.a(25 * MB); w.end(2); w.f(s); w.drop(2); w.stats(); w.snap(); w.f(x, u); w.empty(); w.stats()

w = new("mempool-no-split")
w.begin(1, no_split=True); a = w.a(3 * MB); b = w.a(3 * MB); c = w.a(100); d = w.a(200); e = w.a(11 * MB); w.end(1); w.stats(); w.snap(); w.f(a, c); w.begin(1); f = w.a(19 * MB); g = w.a(12 * MB); h = w.a(1 * MB); w.end(1); w.snap(); w.f(b, d, e, f, g, h); w.stats(); w.drop(1); w.stats(); w.snap()

w = new("mempool-use-on-oom", total=1 * GB)
w.begin(1, use_on_oom=True); a = w.a(400 * MB); b = w.a(50 * MB); w.end(1); w.begin(2); c = w.a(200 * MB); w.end(2); d = w.a(300 * MB); w.f(a, c); w.stats()
e = w.a(350 * MB); w.stats(); w.snap(); f = w.a(180 * MB); w.stats(); g = w.a(45 * MB); w.stats(); w.f(b); h = w.a(45 * MB); w.stats(); w.snap(); w.f(e); i = w.a(60 * MB); w.f(d); j = w.a(290 * MB); w.drop(1); w.stats(); w.snap(); k = w.a(390 * MB); w.drop(2); w.stats(); k = w.a(390 * MB); w.stats(); w.snap()

w = new("mempool-expandable", settings="expandable_segments:True", total=2 * GB)
a = w.a(30 * MB); w.begin(1); b = w.a(30 * MB); c = w.a(3 * KB); d = w.a(50 * MB, 1); w.end(1); w.stats(); w.snap(); w.f(b); e = w.a(20 * MB); w.empty(); w.stats(); w.begin(1); f = w.a(90 * MB); w.end(1); w.snap(); w.f(c, d, f); w.empty(); w.snap(); w.drop(1); w.stats(); w.snap()
g = w.a(3 * GB); w.stats()

w = new("devices", devices=3, total=2 * GB)
for k in range(3): w.a((k + 1) * 3 * MB, device=k); w.a(100 * (k + 1), stream=k, device=k)
a = [w.a(40 * MB, device=k) for k in (2, 1, 0, 1)]; w.f(a); w.stats(); w.empty(); w.stats(); w.snap(); w.fraction(0.1, 1); b = w.a(300 * MB, device=1); c = w.a(300 * MB, device=2); d = w.a(3 * GB, device=2); w.stats()
w.ready(False); e = w.a(5 * MB, 1, 2); w.rs(e, 2); w.f(e); w.a(6, device=0); w.snap(); w.ready(True); w.a(6, device=0); w.stats(); w.a(7, device=2); w.stats(); w.snap(); w.op("reset_peak"); w.f(c); w.op("reset_accumulated"); w.stats(); w.empty(); w.stats()

w = new("resets", total=1 * GB, settings="max_split_size_mb:50")
a = [w.a(n * MB) for n in (1, 5, 20, 60, 200)]; w.f(a[1], a[4]); w.op("reset_peak"); w.stats(); w.a(3 * MB); b = w.a(190 * MB); w.stats(); w.op("reset_accumulated"); w.stats(); w.f(b); c = w.a(900 * MB); w.stats(); w.op("reset_peak"); w.op("reset_accumulated"); w.stats()
w.f(a[0], a[2], a[3]); c = w.a(800 * MB); w.empty(); w.stats(); w.op("reset_peak"); w.stats()

w = new("settings-errors", total=4 * GB)
for v in ("foo:1", "max_split_size_mb:19", "max_split_size_mb:20", "max_split_size_mb:21", "max_split_size_mb:x", "max_split_size_mb", "max_non_split_rounding_mb:10",
          "garbage_collection_threshold:0", "garbage_collection_threshold:1", "garbage_collection_threshold:0.3", "garbage_collection_threshold:1.5", "garbage_collection_threshold:-1",
          "roundup_power2_divisions:3", "roundup_power2_divisions:0", "roundup_power2_divisions:4", "roundup_power2_divisions:[256:3]", "roundup_power2_divisions:[3:2]", "roundup_power2_divisions:[256:2,>:4]", "roundup_power2_divisions:[256:2",
          "expandable_segments:maybe", "expandable_segments:true", "expandable_segments:True", "expandable_segments:False", "backend:native", "backend:foo", "backend:cudaMallocAsync",
          "large_segment_size_mb:0", "large_segment_size_mb:40", "large_segment_size_mb:20", "per_process_memory_fraction:1.5", "per_process_memory_fraction:0.5", "per_process_memory_fraction:1.0", "release_lock_on_cudamalloc:True",
          "pinned_num_register_threads:3", "pinned_num_register_threads:8", "pinned_use_cuda_host_register:True", " max_split_size_mb : 64 , garbage_collection_threshold : 0.8 ", "", ",", "max_split_size_mb:64,,garbage_collection_threshold:0.8", "throw_on_cudamalloc_oom:True", "graph_capture_record_stream_reuse:True",
          "max_split_size_mb:50,bogus:1", "max_split_size_mb:64;garbage_collection_threshold:0.8", "expandable_segments:[True]", "max_split_size_mb:99999999999"):
    w.settings(v); w.snap()
w.a(70 * MB); w.stats()

w = new("large-segment-size", settings="large_segment_size_mb:64", total=4 * GB)
for n in (MB + 1, 9 * MB, 10 * MB, 15 * MB, 31 * MB, 32 * MB, 33 * MB, 63 * MB, 64 * MB, 65 * MB, 100 * MB): w.f(w.a(n)); w.empty()
a = [w.a(9 * MB) for _ in range(12)]; w.snap(); w.stats()

w = new("preemptive-reject", total=4 * GB, settings="throw_on_cudamalloc_oom:True,per_process_memory_fraction:0.5")
a = w.a(1 * GB); b = w.a(500 * MB); w.f(b); c = w.a(700 * MB); w.stats(); d = w.a(3 * GB); w.stats(); e = w.a(2 * GB); w.stats(); w.f(a); w.a(1500 * MB); w.stats(); w.snap()

w = new("expandable-reserve", total=4 * GB, settings="expandable_segments:True,expandable_segments_reserve:0.25")
a = w.a(700 * MB); b = w.a(400 * MB); c = w.a(1100 * MB); w.stats(); w.snap(); w.f(a, b); d = w.a(1000 * MB); e = w.a(1200 * MB); w.stats(); w.snap()

w = new("settings-sticky", total=4 * GB)      # which options survive a later "settings" with other options
w.settings("expandable_segments:True"); w.settings("max_split_size_mb:64"); a = w.a(70 * MB); w.snap(); w.settings("garbage_collection_threshold:0.5"); b = w.a(200 * MB); w.stats(); w.settings("expandable_segments:False")
w.settings("large_segment_size_mb:64"); c = w.a(5 * MB, 1); w.settings("max_split_size_mb:30"); d = w.a(5 * MB, 2); w.settings("large_segment_size_mb:20"); e = w.a(5 * MB, 3); w.snap(); w.f(a, b, c, d, e); w.empty(); w.stats()
w.settings("max_split_size_mb:30,max_non_split_rounding_mb:100"); a = w.a(130 * MB); w.f(a); b = w.a(35 * MB); w.f(b); w.settings("max_split_size_mb:30"); b = w.a(35 * MB); w.f(b); w.empty(); w.snap()
w.settings("per_process_memory_fraction:0.25"); a = w.a(1100 * MB); w.settings("max_split_size_mb:30"); b = w.a(1100 * MB); w.fraction(1.0); b = w.a(1100 * MB); w.settings("per_process_memory_fraction:0.1"); c = w.a(500 * MB); w.f(a, b, c); w.stats(); w.empty()
w.settings("roundup_power2_divisions:4"); a = w.a(5 * MB + 1); w.settings("max_split_size_mb:40"); b = w.a(5 * MB + 1); w.settings("roundup_power2_divisions:[8:4]"); c = w.a(5 * MB + 1); d = w.a(9 * MB + 1); w.settings("roundup_power2_divisions:[64:2]"); e = w.a(5 * MB + 1); f = w.a(9 * MB + 1); w.snap(); w.stats()

w = new("ties", total=4 * GB)                 # equal sizes: oldest segment first, then lowest offset; cudaMalloc'ed and expandable mixed
for first in (False, True):
    w.settings("expandable_segments:%s" % first)
    a = [w.a(3584), w.a(512), w.a(3584), w.a(512)]; p = w.a(MB); q = w.a(MB - 8192)
    w.settings("expandable_segments:%s" % (not first))
    b = [w.a(3584), w.a(512), w.a(3584), w.a(512)]; r = w.a(MB); s = w.a(MB - 8192)
    w.settings("expandable_segments:True"); w.f(b[2], a[2], b[0], a[0]); w.snap(); c = [w.a(2560) for _ in range(4)]; w.snap(); w.f(c)
    w.settings("expandable_segments:False"); c = [w.a(3000) for _ in range(4)]; w.snap(); w.f(a[1], a[3], b[1], b[3], c, p, q, r, s); w.stats(); w.empty()
x = [w.a(12 * MB) for _ in range(5)]; w.f(x[2], x[0], x[4], x[3], x[1]); [w.a(11 * MB + k) for k in range(5)]; w.snap(); w.stats()

w = new("mempool-use-on-oom-expandable", total=1 * GB, settings="expandable_segments:True")
w.begin(1, use_on_oom=True); a = w.a(400 * MB); b = w.a(60 * MB); w.end(1); c = w.a(500 * MB); w.f(a); e = w.a(350 * MB); w.f(b); f = w.a(45 * MB); g = w.a(3 * MB); w.settings("expandable_segments:False"); h = w.a(30 * MB); w.stats(); w.snap(); w.drop(1); h = w.a(30 * MB); w.stats(); w.snap()

w = new("mempool-order", total=2 * GB)        # several pools and queues: order of release, of fallback and of polling
for k in range(1, 13): w.begin(k, use_on_oom=k % 3 == 0); w.a(12 * MB); w.a(14 * MB); w.a(100); w.end(k)
ids = list(range(1, 37)); w.f(ids[1::3]); big = w.a(1500 * MB); [w.a(13 * MB) for _ in range(3)]; w.stats(); w.snap()
for k in (4, 9, 12, 1, 3, 7): w.drop(k)
w.f(ids[0::3]); w.stats(); w.empty(); w.stats(); w.f(ids[2::3]); w.stats(); w.empty(); w.snap(); w.ready(False)
s = [w.a((k + 1) * MB, k) for k in range(8)]
for i in s: [w.rs(i, t) for t in (5, 2, 7, 0, 3, 6, 1, 4)]
w.f(s); w.stats(); w.ready(True); w.a(1); w.stats(); w.snap()

# ---- seeded random
w = new("random-200"); random_mix(w, 200, 300 * MB, p_stats=0.02, p_empty=0.01, p_snap=0.02)
w = new("random-streams-2k", total=6 * GB); random_mix(w, 2000, 3 * GB, streams=(0, 0, 0, 1, 2, 3), p_record=0.15, p_toggle=0.03, p_snap=0.002)
w = new("random-expandable-2k", total=6 * GB, settings="expandable_segments:True"); random_mix(w, 2000, 3 * GB, streams=(0, 0, 1, 2), p_record=0.1, p_toggle=0.03, p_empty=0.01, p_snap=0.003)
w = new("random-pressure-3k", total=1536 * MB); random_mix(w, 3000, 1500 * MB, streams=(0, 0, 0, 1), p_record=0.05, p_snap=0.001)
w = new("random-max-split-3k", total=2 * GB, settings="max_split_size_mb:32,max_non_split_rounding_mb:24"); random_mix(w, 3000, 1900 * MB, streams=(0, 0, 1), big=1.5, p_snap=0.001)
w = new("random-gc-3k", total=4 * GB, settings="garbage_collection_threshold:0.6", fraction=0.5); random_mix(w, 3000, 1500 * MB, streams=(0, 0, 1), fractions=(0.4, 0.5, 0.6, 1.0), p_snap=0.001)
w = new("random-roundup-gc-split-2k", total=3 * GB, settings="roundup_power2_divisions:8,max_split_size_mb:48,garbage_collection_threshold:0.7", fraction=0.7); random_mix(w, 2000, 1700 * MB, streams=(0, 1), fractions=(0.5, 0.7, 0.9))
w = new("random-devices-3k", devices=4, total=2 * GB); random_mix(w, 3000, 1200 * MB, streams=(0, 0, 1), devices=4, p_record=0.1, p_stats=0.001)
w = new("random-pools-2k", total=3 * GB); random_mix(w, 2000, 1500 * MB, streams=(0, 0, 1), pools=8, p_snap=0.002)
w = new("random-pools-expandable-pressure-2k", total=1200 * MB, settings="expandable_segments:True"); random_mix(w, 2000, 1200 * MB, streams=(0, 0, 1), pools=8, p_snap=0.002)
w = new("random-toggle-2k", total=2 * GB); random_mix(w, 2000, 1800 * MB, streams=(0, 0, 1), settings=("expandable_segments:True", "expandable_segments:False", "max_split_size_mb:64", "roundup_power2_divisions:4", "garbage_collection_threshold:0.7"), fractions=(0.8, 1.0), p_snap=0.002)
w = new("train-transformer-8k", total=16 * GB); transformer(w, 100, comm=1, max_ops=8000, stats_every=8)
w = new("train-transformer-expandable-8k", total=16 * GB, settings="expandable_segments:True"); transformer(w, 100, comm=1, ckpt=True, max_ops=8000, seqs=(128, 200, 333, 512, 777), stats_every=8)
w = new("train-transformer-tight-6k", total=900 * MB); transformer(w, 100, layers=6, batch=4, max_ops=6000, seqs=(128, 256, 384, 512), stats_every=8)
w = new("train-cnn-8k", total=8 * GB); cnn(w, 300, max_ops=8000, stats_every=20)
w = new("train-cnn-max-split-6k", total=3 * GB, settings="max_split_size_mb:128,roundup_power2_divisions:4"); cnn(w, 300, batch=24, max_ops=6000, stats_every=20)
w = new("infer-kvcache-12k", total=4 * GB); kvcache(w, 2000, max_ops=12000, stats_every=40)
w = new("infer-kvcache-expandable-20k", total=4 * GB, settings="expandable_segments:True"); kvcache(w, 3000, max_ops=20000, stats_every=60)

if __name__ == "__main__":
    for w in out:
        print(w.write(sys.argv[1]), len(w.ops))
