#!/usr/bin/env python3
"""Pickle files a safe snapshot reader must survive, with a manifest.

    python3 make_hostile.py OUT          write the files and manifest.json
    python make_hostile.py --viz OUT     then, with torch: accept_results.json, the output of the
                                         real _memory_viz for every case that may be accepted
Standard library only.  Each case: name, bytes, expect, why.
  reject   exit with a clear one-line error; nothing is imported, called or written
  accept   it is a valid snapshot (or tracker) file: load it like any other
  either   load or reject, but without a crash, and within 2 s and 256 MiB
No case may ever create the file HOSTILE_RAN in the working directory.
The manifest also has the result of CPython's pickle with a find_class that rejects everything except
collections.defaultdict / OrderedDict and builtins.set / frozenset / int.
"""
import json
import os
import pickle
import resource
import struct
import subprocess
import sys

CMD = b"touch HOSTILE_RAN"
GOOD = {"segments": [{"device": 0, "address": 4096, "total_size": 2097152, "allocated_size": 512, "active_size": 512, "requested_size": 500, "stream": 0,
                      "segment_type": "small", "segment_pool_id": (0, 0), "is_expandable": False, "frames": [],
                      "blocks": [{"address": 4096, "size": 512, "requested_size": 500, "state": "active_allocated", "frames": [{"name": "f", "filename": "a.py", "line": 1}]},
                                 {"address": 4608, "size": 2096640, "requested_size": 0, "state": "inactive", "frames": []}]}],
        "device_traces": [[{"action": "alloc", "addr": 4096, "size": 500, "stream": 0, "time_us": 5, "frames": []}]]}


def P(o, proto=4):
    return pickle.dumps(o, proto)


def body(o):
    """Returns the protocol 2 opcodes without PROTO and STOP."""
    return pickle.dumps(o, 2)[2:-1]


def u(s):
    b = s if isinstance(s, bytes) else s.encode()
    return b"X" + struct.pack("<I", len(b)) + b


def su(s):
    b = s if isinstance(s, bytes) else s.encode()
    return b"\x8c" + bytes([len(b)]) + b


def good(**kw):
    import copy
    g = copy.deepcopy(GOOD)
    g.update(kw)
    return g


def with_seg(**kw):
    g = good()
    for k, v in kw.items():
        if v is KeyError:
            g["segments"][0].pop(k)
        else:
            g["segments"][0][k] = v
    return g


def with_blk(**kw):
    g = good()
    g["segments"][0]["blocks"][0].update(kw)
    return g


def with_ev(**kw):
    g = good()
    g["device_traces"][0][0].update(kw)
    return g


def cases():
    R, A, E = "reject", "accept", "either"
    # --- globals and calls
    yield "global_system_reduce", b"cos\nsystem\n(S'" + CMD + b"'\ntR.", R, "protocol 0 GLOBAL os.system called by REDUCE"
    yield "stack_global_system", b"\x80\x04" + su("posix") + su("system") + b"\x93" + su(CMD) + b"\x85R.", R, "STACK_GLOBAL posix.system"
    yield "inst_system", b"(S'" + CMD + b"'\nios\nsystem\n.", R, "INST builds an object by calling a global"
    yield "obj_system", b"(cos\nsystem\nS'" + CMD + b"'\no.", R, "OBJ"
    yield "newobj", b"\x80\x02csubprocess\nPopen\n(S'" + CMD + b"'\nt\x81.", R, "NEWOBJ"
    yield "newobj_ex", b"\x80\x04" + su("subprocess") + su("Popen") + b"\x93)}\x92.", R, "NEWOBJ_EX"
    yield "eval_reduce", b"\x80\x02c__builtin__\neval\n" + u("open('HOSTILE_RAN','w')") + b"\x85R.", R, "py2 name of builtins.eval"
    yield "getattr_chain", b"\x80\x04" + su("builtins") + su("getattr") + b"\x93" + su("os") + su("system") + b"\x86R.", R, "getattr as a gadget"
    yield "stack_global_dotted", b"\x80\x04" + su("collections") + su("OrderedDict.__init__.__globals__") + b"\x93.", R, "an allowed module with a dotted name"
    yield "global_unused_popped", b"cos\nsystem\n0" + body(GOOD) + b".", R, "a global that is thrown away before a sound snapshot: must not be resolved"
    yield "global_in_dead_value", P(GOOD)[:-1].replace(b"\x80\x04", b"\x80\x04", 1) + b"cos\nsystem\n0.", R, "the global comes after the snapshot and is popped"
    yield "defaultdict_system", b"\x80\x02ccollections\ndefaultdict\ncos\nsystem\n\x85R.", R, "an allowed class with a forbidden factory"
    yield "build_dict", b"}}X\x01\x00\x00\x00aK\x01sb.", R, "BUILD on a dictionary"
    yield "build_setattr", b"\x80\x02ccollections\nOrderedDict\n)R}U\x08__dict__K\x01sb.", E, "BUILD on an allowed object (CPython sets its attributes)"
    yield "reduce_not_callable", b"\x80\x02K\x05)R.", R, "REDUCE of an integer"
    for n, op in (("ext1", b"\x82\x01"), ("ext2", b"\x83\x01\x00"), ("ext4", b"\x84\x01\x00\x00\x00")):
        yield n, b"\x80\x02" + op + b".", R, "extension registry code"
    yield "persid", b"Pevil\n.", R, "PERSID"
    yield "binpersid", b"\x80\x02" + u("evil") + b"Q.", R, "BINPERSID"
    yield "next_buffer", b"\x80\x05\x97.", R, "out-of-band buffer"
    yield "readonly_buffer", b"\x80\x05" + b"C\x01a\x98.", E, "READONLY_BUFFER over bytes"
    yield "tracker_defaultdict_int", P({"memories_allocated": __import__("collections").defaultdict(int, {0: ("a", 1.0)})}), E, "defaultdict(int) as MemoryTracker writes it; not a snapshot, must not execute"
    # --- truncation
    g4, g2 = P(GOOD), P(GOOD, 2)
    yield "empty_file", b"", R, "no bytes"
    yield "only_proto", b"\x80\x04", R, "header only"
    yield "truncated_half", g4[:len(g4) // 2], R, "cut in the middle"
    yield "truncated_no_stop", g4[:-1], R, "STOP missing"
    yield "truncated_in_string", g2[:g2.index(b"total_size") + 4], R, "cut inside a string"
    yield "truncated_in_int", b"\x80\x02J\x01\x02", R, "cut inside BININT"
    yield "truncated_text_line", b"I123", R, "text INT without newline"
    # --- depth
    n = 100000
    yield "deep_lists", b"]" * n + b"a" * (n - 1) + b".", E, "100 000 nested lists"
    yield "deep_tuples", b")" + b"\x85" * n + b".", E, "100 000 nested tuples"
    yield "deep_dicts", b"}K\x00" * n + b"N" + b"s" * n + b".", E, "100 000 nested dictionaries"
    yield "deep_marks", b"(" * n + b".", R, "100 000 marks, nothing else"
    deep = b"]" * n + b"a" * (n - 1)
    yield "deep_in_unknown_key", b"\x80\x02}" + b"(" + u("segments") + b"]" + u("device_traces") + b"]" + u("zz") + deep + b"u.", E, "the depth sits under a key nobody reads; dropping it must not overflow the stack"
    # --- lengths
    yield "len_binunicode8", b"\x80\x04\x8d" + struct.pack("<Q", 1 << 62) + b"abc.", R, "string of 2^62 bytes"
    yield "len_binunicode8_max", b"\x80\x04\x8d" + b"\xff" * 8 + b"abc.", R, "string of 2^64-1 bytes"
    yield "len_binunicode", b"\x80\x02X\xff\xff\xff\xffabc.", R, "string of 4 GiB"
    yield "len_binbytes8", b"\x80\x04\x8e" + struct.pack("<Q", 1 << 40) + b"abc.", R, "bytes of 1 TiB"
    yield "len_bytearray8", b"\x80\x05\x96" + struct.pack("<Q", 1 << 40) + b"abc.", R, "bytearray of 1 TiB"
    yield "len_long4", b"\x80\x02\x8b" + struct.pack("<i", 0x7FFFFFFF) + b"\x01.", R, "integer of 2 GiB"
    yield "len_long4_negative", b"\x80\x02\x8b" + struct.pack("<i", -5) + b"\x01.", R, "negative length"
    yield "len_binstring_negative", b"\x80\x02T" + struct.pack("<i", -1) + b"a.", R, "negative BINSTRING length"
    yield "len_frame", b"\x80\x04\x95" + struct.pack("<Q", 1 << 62) + b"}.", R, "frame longer than the file"
    yield "frame_too_short", b"\x80\x04\x95" + struct.pack("<Q", 3) + body(GOOD) + b".", E, "frame that ends inside an opcode"
    # --- memo
    yield "memo_get_unset", b"\x80\x02h\x05.", R, "BINGET of an unset slot"
    yield "memo_long_get_unset", b"\x80\x02j\xff\xff\xff\xff.", R, "LONG_BINGET far outside"
    yield "memo_long_put_huge", b"\x80\x02}r\xf0\xff\xff\xff(" + body(GOOD)[body(GOOD).index(b"(") + 1:] + b".", E, "LONG_BINPUT to slot 4294967280: no table of that size"
    yield "memo_text_put_negative", b"}p-1\n.", R, "text PUT with a negative index"
    yield "memo_text_get_words", b"gabc\n.", R, "text GET without a number"
    yield "memo_put_empty_stack", b"q\x00.", R, "PUT with nothing on the stack"
    yield "memo_overwrite", b"\x80\x02" + u("segments") + b"q\x010" + b"]q\x010}(" + u("segments") + b"h\x01" + u("device_traces") + b"h\x01u.", A, "a slot is overwritten; both lists are the same empty list"
    # --- stack discipline
    for nm, b in (("stop_empty", b"."), ("append_empty", b"a."), ("setitem_short", b"}K\x01s."), ("setitems_odd", b"}(K\x01u."), ("setitems_no_mark", b"}K\x01K\x02u."),
                  ("appends_no_mark", b"]K\x01e."), ("tuple_no_mark", b"K\x01t."), ("tuple3_short", b"K\x01\x87."), ("pop_empty", b"0."), ("popmark_empty", b"1."),
                  ("append_to_dict", b"}K\x01a."), ("setitem_on_list", b"]K\x01K\x02s."), ("dup_empty", b"2."), ("stop_on_mark", b"(."), ("list_of_pairs_odd", b"(K\x01d.")):
        yield "stack_" + nm, b"\x80\x02" + b, R, "stack misuse"
    yield "unhashable_key", b"\x80\x02}]K\x01s.", R, "a list as dictionary key"
    yield "unknown_opcode", b"\x80\x02\xff.", R, "opcode that does not exist"
    yield "proto_99", b"\x80\x63}.", R, "protocol 99"
    yield "not_pickle_text", b"hello world\n", R, "a text file"
    yield "not_pickle_json", json.dumps(GOOD).encode(), R, "the snapshot as JSON"
    yield "not_pickle_zip", b"PK\x03\x04" + b"\x00" * 60, R, "a zip file (torch.save)"
    # --- wrong shapes (all loadable)
    for nm, o in (("root_int", 5), ("root_none", None), ("root_str", "segments"), ("root_tuple", ()), ("root_list_of_int", [1, 2]), ("root_bytes", b"abc"), ("dict_without_segments", {"device_traces": []}),
                  ("segments_dict", good(segments={})), ("segments_none", good(segments=None)), ("segments_int_items", good(segments=[1, 2])), ("blocks_none", with_seg(blocks=None)), ("blocks_missing", with_seg(blocks=KeyError)),
                  ("size_str", with_blk(size="512")), ("size_none", with_blk(size=None)), ("state_int", with_blk(state=3)), ("frames_int", with_blk(frames=7)), ("frames_str_items", with_blk(frames=["a", "b"])),
                  ("frame_without_name", with_blk(frames=[{"filename": "x", "line": 1}])), ("address_str", with_seg(address="0x10")), ("total_size_float", with_seg(total_size=2097152.5)), ("traces_dict", good(device_traces={"0": []})),
                  ("trace_int_events", good(device_traces=[[1]])), ("trace_none", good(device_traces=None)), ("action_missing", good(device_traces=[[{"addr": 1}]])), ("action_int", with_ev(action=5)), ("addr_none", with_ev(addr=None))):
        yield "shape_" + nm, P(o), E, "loadable, but not the shape of a snapshot: a clear message (which key, where), or an empty answer where Python gives one"
    # --- strings
    yield "str_invalid_utf8", b"\x80\x02" + body(GOOD).replace(b"a.py", b"\xff\xfe.p") + b".", R, "BINUNICODE that is not UTF-8"
    yield "str_surrogate", b"\x80\x02" + body(GOOD).replace(b"a.py", b"\xed\xb2\x80y") + b".", A, "a lone surrogate as Python writes it"
    yield "str_py2_bytes", b"}(U\x08segments](}(U\x06deviceK\x00U\x07addressK\x05U\ntotal_sizeM\x00\x02U\x0eallocated_sizeM\x00\x02U\x06streamK\x00U\x06blocks](}(U\x04sizeM\x00\x02U\x05stateU\x10active_allocatedueueU\rdevice_traces]u.", A, "SHORT_BINSTRING as Python 2 writes strings"
    yield "str_py2_high_bytes", b"}(U\x08segments]U\rdevice_traces]U\x02zzU\x02\xff\xfeu.", E, "py2 string that is not ASCII: CPython refuses"
    yield "str_text_escapes", b"(dS'segm\\x65nts'\n(lsS\"device_traces\"\n(lsVz\\u00e9\\ud83d\\ude00\nI01\ns.", A, "STRING with an escape, UNICODE text with surrogates, I01"
    yield "str_text_unquoted", b"Sabc\n.", R, "STRING without quotes"
    yield "str_nul_and_huge_line", b"\x80\x02" + body(with_blk(frames=[{"name": "n" * 300000, "filename": "\x00/\x00", "line": 1}])) + b".", A, "a name of 300 000 characters, NULs in a file name"
    # --- numbers
    yield "int_long1_255", P(with_blk(zz=(1 << 2030) - 1), 2), A, "an unread key holds an integer of 254 bytes"
    yield "int_long4_1mb", b"\x80\x02}(" + u("segments") + b"]" + u("device_traces") + b"]" + u("zz") + b"\x8b" + struct.pack("<i", 1 << 18) + b"\x7f" * (1 << 18) + b"u.", E, "an integer of 256 KiB"
    yield "int_text_long", b"}(Vsegments\n(lVdevice_traces\n(lVzz\nL" + b"9" * 100000 + b"L\nu.", E, "a decimal integer of 100 000 digits: not in quadratic time for long"
    yield "int_text_bad", b"I12x\n.", R, "INT with letters"
    yield "float_text", b"}(Vsegments\n(lVdevice_traces\n(lVzz\nF1e300\nVyy\nFnan\nVxx\nF-inf\nu.", A, "text floats: 1e300, nan, -inf"
    yield "float_text_bad", b"F1..2\n.", R, "bad float"
    yield "size_huge", P({"segments": [{**GOOD["segments"][0], "total_size": 1 << 80, "allocated_size": 1 << 80, "blocks": [{"size": 1 << 80, "requested_size": 1 << 80, "state": "active_allocated", "frames": []}]}], "device_traces": [[]]}), E, "sizes of 2^80: 5e16 pages of 20 MiB must not be drawn"
    yield "size_many_pages", P({"segments": [{**GOOD["segments"][0], "total_size": 1 << 60, "blocks": [{"size": 1 << 60, "requested_size": 1 << 60, "state": "active_allocated", "frames": []}]}], "device_traces": [[]]}), E, "1 EiB in one segment: 5e10 pages; CPython dies of memory"
    yield "size_negative", P(with_blk(size=-512, requested_size=-512)), E, "negative sizes"
    yield "size_bool", P(with_blk(size=True, requested_size=True)), E, "booleans are integers in Python"
    yield "addr_wrap", P({"segments": [{**GOOD["segments"][0], "address": (1 << 64) - 1}], "device_traces": [[{"action": "alloc", "addr": (1 << 64) - 1, "size": 1 << 63, "stream": 0}]]}), A, "address plus size passes 2^64"
    # --- cycles and sharing
    yield "cycle_list", b"\x80\x02]q\x00h\x00a.", R, "a list that holds itself as root (loads in CPython; it is no snapshot)"
    yield "cycle_dict", b"\x80\x02}q\x00(" + u("segments") + b"]" + u("device_traces") + b"]" + u("me") + b"h\x00u.", E, "the snapshot holds itself under an unknown key"
    yield "cycle_segments", b"\x80\x02}(" + u("segments") + b"]q\x00h\x00a" + u("device_traces") + b"]u.", R, "segments holds itself (loads in CPython; it is no snapshot)"
    yield "cycle_frames", b"\x80\x02" + body(GOOD).replace(b"]q", b"]q", 1)[:-1] + u("zz") + b"]q\xf0h\xf0au.", E, "an unknown list that holds itself"
    lol = b"]q\x00" + b"".join(b"](h" + bytes([i]) + b"h" + bytes([i]) + b"eq" + bytes([i + 1]) for i in range(60))
    yield "lol_unknown_key", b"\x80\x02}(" + u("segments") + b"]" + u("device_traces") + b"]" + u("zz") + b"(" + lol + b"lu.", E, "2^60 paths through 60 shared lists under an unknown key"
    yield "lol_frames", b"\x80\x02}(" + u("segments") + b"]" + u("device_traces") + b"](](}(" + u("action") + u("alloc") + u("addr") + b"K\x01" + u("size") + b"K\x01" + u("stream") + b"K\x00" + u("frames") + b"(" + lol + b"lueeu.", E, "the same as frames of an event"
    fr = [{"name": "f%d" % i, "filename": "a.py", "line": i} for i in range(500)]
    e = {"action": "alloc", "addr": 1, "size": 1, "stream": 0, "frames": fr}
    yield "shared_events", P({"segments": [], "device_traces": [[e] * 60000]}), A, "one event object of 500 frames 60 000 times: 3e7 frames if copied"
    # --- rest
    yield "trailing_garbage", g4 + b"\x00\x00\x00garbage cos\nsystem\n", A, "bytes after STOP are not read"
    yield "trailing_zeros", g4 + b"\x00" * 3, A, "what the HTML writer appends"
    yield "two_pickles", g4 + P({"segments": 1}), A, "a second pickle follows: only the first counts"
    yield "no_proto_header", body(GOOD) + b".", A, "binary opcodes without PROTO"
    yield "proto_twice", b"\x80\x02\x80\x02" + body(GOOD) + b".", E, "PROTO twice"
    yield "dup_keys", b"\x80\x02}(" + u("segments") + b"K\x05" + u("segments") + b"]" + u("device_traces") + b"]u.", A, "the last value of a key wins"
    yield "ordered_dict", P(__import__("collections").OrderedDict(GOOD)), A, "the root is an OrderedDict"
    yield "many_nops", b"\x80\x02" + b"(1" * 500000 + body(GOOD) + b".", E, "a million opcodes that do nothing"
    yield "dup_pop", b"\x80\x02" + b"N" + b"20" * 200000 + b"0" + body(GOOD) + b".", E, "DUP and POP"
    yield "values_left_on_stack", b"\x80\x02K\x01K\x02" + body(GOOD) + b".", E, "values under the result"


CHECK = r"""
import sys, pickle, collections, builtins
sys.setrecursionlimit(10000)
class U(pickle.Unpickler):
    def find_class(self, m, n):
        if (m, n) in (("collections", "defaultdict"), ("collections", "OrderedDict")): return getattr(collections, n)
        if m in ("builtins", "__builtin__") and n in ("set", "frozenset", "int"): return getattr(builtins, n)
        raise pickle.UnpicklingError("refused global " + m + "." + n)
    def persistent_load(self, pid): raise pickle.UnpicklingError("refused persistent id")
try:
    o = U(open(sys.argv[1], "rb")).load()
    print("loads: " + type(o).__name__, flush=True)
    import os; os._exit(0)
except BaseException as e:
    print(type(e).__name__ + ": " + str(e)[:120])
"""


VIZ = r"""
import sys, json, hashlib, pickle, collections, builtins, importlib.util as iu
f = iu.find_spec("torch").submodule_search_locations[0] + "/cuda/_memory_viz.py"
sp = iu.spec_from_file_location("viz", f); viz = iu.module_from_spec(sp); sp.loader.exec_module(viz)
class U(pickle.Unpickler):
    def find_class(self, m, n):
        if (m, n) in (("collections", "defaultdict"), ("collections", "OrderedDict")): return getattr(collections, n)
        if m in ("builtins", "__builtin__") and n in ("set", "frozenset", "int"): return getattr(builtins, n)
        raise pickle.UnpicklingError("refused global " + m + "." + n)
def load(p):
    d = U(open(p, "rb")).load()
    return {"segments": d, "traces": []} if isinstance(d, list) else d
ident = lambda s: s
data = load(sys.argv[1])
r = {}
for k, f in (("stats", viz.segsum), ("trace", viz.trace), ("memory", lambda d: viz.memory(d, format_flamegraph=ident))):
    try:
        t = f(data).encode("utf-8", "surrogatepass")
        r[k] = {"text": t.decode("utf-8")} if len(t) < 4000 else {"sha256": hashlib.sha256(t).hexdigest(), "bytes": len(t)}
    except UnicodeDecodeError:
        r[k] = {"hex": t.hex()}
    except Exception as e:
        r[k] = {"error": type(e).__name__ + ": " + str(e)[:200]}
print(json.dumps(r))
"""


def viz_results(out, python):
    """Writes the output of the real _memory_viz for every case that may be accepted (second call, needs torch)."""
    man = [json.loads(l.rstrip(",\n")) for l in open(os.path.join(out, "manifest.json")) if l.startswith("{")]
    res = {}
    for m in man:
        if m["expect"] != "reject" and m["cpython_restricted"].startswith("loads"):
            p = subprocess.run([python, "-I", "-c", VIZ, os.path.join(out, m["file"])], capture_output=True, text=True, preexec_fn=limits)
            res[m["file"]] = json.loads(p.stdout) if p.returncode == 0 else {"died": (p.stderr.strip().splitlines() or ["no message"])[-1][:200]}
    with open(os.path.join(out, "accept_results.json"), "w") as f:
        json.dump(res, f, indent=0)


def limits():
    resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
    resource.setrlimit(resource.RLIMIT_CPU, (20, 20))


def main(out, cases):
    os.makedirs(out, exist_ok=True)
    man = []
    for name, data, expect, why in cases:
        f = name + ".pickle"
        open(os.path.join(out, f), "wb").write(data)
        p = subprocess.run([sys.executable, "-I", "-c", CHECK, f], cwd=out, capture_output=True, text=True, preexec_fn=limits)
        man.append({"file": f, "bytes": len(data), "expect": expect, "why": why, "cpython_restricted": p.stdout.strip() or f"died, exit {p.returncode}"})
    assert not os.path.exists(os.path.join(out, "HOSTILE_RAN"))
    with open(os.path.join(out, "manifest.json"), "w") as f:
        f.write("[\n" + ",\n".join(json.dumps(m) for m in man) + "\n]\n")
    bad = [m for m in man if (m["expect"] == "accept") != m["cpython_restricted"].startswith("loads") and m["expect"] != "either"]
    print(len(man), "cases;", "differs from CPython's loader:", *(f"\n  {m['file']}: expect {m['expect']}, CPython {m['cpython_restricted']}" for m in bad))


if __name__ == "__main__":
    if sys.argv[1] == "--viz":
        viz_results(sys.argv[2], sys.executable)
    else:
        main(sys.argv[1], cases())
