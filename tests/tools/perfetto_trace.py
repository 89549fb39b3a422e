#!/usr/bin/env python3
"""Reads memtrack's Perfetto traces with Perfetto's own definitions, field by field.

Usage: tests/tools/setup.sh WORK && WORK/venv/bin/python3 tests/tools/perfetto_trace.py MEMTRACK [FILE...]
MEMTRACK is the command. Files are recordings and snapshots; without any, fixtures. Each is converted, and the trace is
compared with `memtrack summary` and `memtrack top`. The definitions are those of the package `perfetto` on PyPI. Perfetto's
trace processor is not part of it, so this script implements its rules for counters, slices and heap profiles.
"""

import json
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from google.protobuf.unknown_fields import UnknownFieldSet
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as perfetto

WORKSPACE = Path(__file__).resolve().parent.parent.parent
FIXTURES = ("tests/fixtures/snapshots/samples/*.pickle", "tests/fixtures/snapshots/recorded/*.pickle",
            "memtrack-core/fuzz/corpus/recordings/*.memtrack")

TrackEvent = perfetto.TrackEvent
MONOTONIC_COARSE, BOOTTIME = 4, 6


class Wrong(Exception):
    """An error in a trace."""


def need(condition, what):
    if not condition:
        raise Wrong(what)


def all_known(message, where="trace"):
    """Checks that Perfetto defines every field, and every number of an enum."""
    unknown = [field.field_number for field in UnknownFieldSet(message)]
    need(not unknown, f"{where}: fields {unknown} are not Perfetto's")
    for field, value in message.ListFields():
        values = value if field.is_repeated else [value]
        for one in values:
            inner = f"{where}.{field.name}"
            if field.message_type:
                all_known(one, inner)
            elif field.enum_type:
                need(one in field.enum_type.values_by_number, f"{inner}: {one} has no name")


class Sequence:
    """The entries that packets of a sequence refer to by number."""

    KINDS = ("event_categories", "event_names", "function_names", "frames", "callstacks", "build_ids",
             "mapping_paths", "source_paths", "mappings")

    def __init__(self):
        self.known = None
        self.dumps = []
        self.pending = []
        self.index = -1

    def packet(self, packet):
        flags = packet.sequence_flags
        if flags & perfetto.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED:
            self.known = {kind: {} for kind in self.KINDS}
        if flags & perfetto.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE:
            need(self.known is not None, "a packet needs names, but none were defined")
        for kind in self.KINDS:
            for entry in getattr(packet.interned_data, kind):
                need(entry.iid != 0, f"{kind}: 0 is not a valid number")
                need(entry.iid not in self.known[kind], f"{kind}: {entry.iid} is defined twice")
                self.known[kind][entry.iid] = entry
        for frame in packet.interned_data.frames:
            self.of("function_names", frame.function_name_id)
            self.of("mappings", frame.mapping_id)
            need(not frame.HasField("line_number") or frame.HasField("source_path_iid"), "a line without a file")
            if frame.HasField("source_path_iid"):
                self.of("source_paths", frame.source_path_iid)
        for mapping in packet.interned_data.mappings:
            for path in mapping.path_string_ids:
                self.of("mapping_paths", path)
            if mapping.HasField("build_id"):
                self.of("build_ids", mapping.build_id)
        for stack in packet.interned_data.callstacks:
            need(stack.frame_ids, "a stack has no frame")
            for frame in stack.frame_ids:
                self.of("frames", frame)

    def of(self, kind, iid):
        need(iid in self.known[kind], f"{kind}: {iid} is not defined")
        return self.known[kind][iid]

    def profile(self, packet):
        """Reads a packet of a heap's dump, which may consist of several numbered packets."""
        profile = packet.profile_packet
        need(profile.index == self.index + 1, f"packet {profile.index} of a heap after {self.index}")
        self.index = profile.index
        self.pending += profile.process_dumps
        if not profile.continued:
            self.dumps.append(self.pending)
            self.pending = []


class Trace:
    """A trace as Perfetto reads it: packets in the order of time, and in the order of the file if times are equal."""

    def __init__(self, data):
        trace = perfetto.Trace()
        trace.ParseFromString(data)
        all_known(trace)
        self.tracks = {}
        self.counters = defaultdict(list)
        self.slices = []
        self.instants = defaultdict(list)
        self.clocks = {}
        sequences = defaultdict(Sequence)
        events = defaultdict(list)
        for place, packet in enumerate(trace.packet):
            need(packet.trusted_packet_sequence_id != 0, "a packet without a sequence")
            sequence = sequences[packet.trusted_packet_sequence_id]
            sequence.packet(packet)
            data = packet.WhichOneof("data")
            if data == "clock_snapshot":
                self.clocks = {clock.clock_id: clock.timestamp for clock in packet.clock_snapshot.clocks}
            elif data == "track_descriptor":
                track = packet.track_descriptor
                need(track.uuid not in self.tracks, f"two tracks are {track.uuid}")
                need(not track.parent_uuid or track.parent_uuid in self.tracks, "a track without its parent")
                self.tracks[track.uuid] = track
            elif data == "track_event":
                event = packet.track_event
                need(packet.HasField("timestamp"), "an event without a time")
                need(event.track_uuid in self.tracks, "an event without a track")
                name = sequence.of("event_names", event.name_iid).name if event.name_iid else None
                for category in event.category_iids:
                    sequence.of("event_categories", category)
                events[event.track_uuid].append((packet.timestamp, place, name, event))
            elif data == "profile_packet":
                sequence.profile(packet)
            else:
                need(packet.HasField("interned_data"), f"an empty packet, {place}")
        need(BOOTTIME in self.clocks, "no clock of the packets")
        need(not any(sequence.pending for sequence in sequences.values()), "a dump has no end")
        for uuid, of_track in events.items():
            self.read(uuid, sorted(of_track, key=lambda event: event[:2]))
        self.heaps = {}
        for sequence in sequences.values():
            for dump in sequence.dumps:
                self.dump(sequence, dump)

    def read(self, uuid, events):
        track, open_slices = self.tracks[uuid], []
        for ns, _, name, event in events:
            if event.type == TrackEvent.TYPE_COUNTER:
                need(track.HasField("counter"), f"{track.name} is not a counter")
                need(track.counter.unit == perfetto.CounterDescriptor.UNIT_SIZE_BYTES, f"{track.name}: not in bytes")
                self.counters[track.name].append((ns, event.counter_value))
                continue
            need(not track.HasField("counter"), f"{track.name} is a counter")
            if event.type == TrackEvent.TYPE_SLICE_BEGIN:
                need(name is not None, f"{track.name}: a slice without a name")
                open_slices.append((ns, name))
            elif event.type == TrackEvent.TYPE_SLICE_END:
                need(open_slices, f"{track.name}: a slice ends that never began")
                begin, name = open_slices.pop()
                self.slices.append((track.name, len(open_slices), name, begin, ns))
            else:
                need(event.type == TrackEvent.TYPE_INSTANT, f"{track.name}: an event of type {event.type}")
                details = {note.name: note.uint_value for note in event.debug_annotations}
                self.instants[track.name].append((ns, name, details))
        need(not open_slices, f"{track.name}: {len(open_slices)} slices never end")

    def dump(self, sequence, heaps):
        """Adds a dump. Its numbers are cumulative: live bytes are the difference, and none may decrease."""
        need(MONOTONIC_COARSE in self.clocks, "no clock of the dumps")
        samples, names = {}, set()
        for heap in heaps:
            names.add((heap.pid, heap.heap_name, heap.timestamp))
            need(heap.sampling_interval_bytes >= 1, "an interval of 0")
            for sample in heap.samples:
                sequence.of("callstacks", sample.callstack_id)
                need(sample.callstack_id not in samples, "a stack occurs twice in a dump")
                samples[sample.callstack_id] = sample
        need(len(names) == 1, f"a dump of {len(names)} heaps")
        _, name, ns = names.pop()
        dumps = self.heaps.setdefault(name, [])
        total = {"allocated": 0, "freed": 0, "allocations": 0, "frees": 0, "ns": ns, "samples": samples}
        for stack, sample in samples.items():
            need(sample.self_freed <= sample.self_allocated, "more was freed than allocated")
            total["allocated"] += sample.self_allocated
            total["freed"] += sample.self_freed
            total["allocations"] += sample.alloc_count
            total["frees"] += sample.free_count
            before = dumps[-1]["samples"].get(stack) if dumps else None
            if before:
                need(before.self_allocated <= sample.self_allocated, "a sum decreases")
                need(before.self_freed <= sample.self_freed, "a sum decreases")
        need(not dumps or dumps[-1]["ns"] <= ns, "dumps go back in time")
        total["live"] = total["allocated"] - total["freed"]
        dumps.append(total)


def close(found, reported, estimated, what):
    # If small blocks were sampled, the trace contains estimates, and reports contain the recorder's counts.
    need(estimated or found == reported, f"{what}: {found} in the trace, {reported} by memtrack")


def answer(command, *arguments):
    """Returns a report of memtrack, by the device's name."""
    report = subprocess.run([command, *arguments, "--json"], check=True, capture_output=True)
    return {device["device"]["name"]: device for device in json.loads(report.stdout)["devices"]}


def check(command, snapshot, folder):
    """Compares a snapshot's trace with memtrack's reports; returns the number of devices, and the trace."""
    target = Path(folder) / "trace.pftrace"
    subprocess.run([command, "convert", snapshot, target, "--force"], check=True, capture_output=True)
    trace = Trace(target.read_bytes())
    summary = answer(command, "summary", snapshot)
    top = {at: answer(command, "top", snapshot, "--by", "size", *(("--at", at) if at else ())) for at in ("", "peak", "end")}
    for name, device in summary.items():
        heading = next((each for each in (name, f"{name} (estimates)") if f"{each}: requested" in trace.counters), None)
        need(heading, f"the trace does not have {name}")
        estimated = heading != name
        need(estimated == top["end"][name]["totals"]["estimated"] or estimated, f"{name}: the trace is exact, but the report is estimated")
        in_all, at_peak, at_end = (top[at][name]["totals"] for at in ("", "peak", "end"))
        # Equal times keep the order of the file, and the last number of a moment applies.
        live = [value for _, value in trace.counters[f"{heading}: requested"]]
        close(max(live), top[""][name]["peak"]["live_bytes"], estimated, f"{name}: peak")
        close(live[-1], at_end["requested_bytes"], estimated, f"{name}: live at the end")
        reserved = trace.counters.get(f"{name}: reserved")
        if reserved:
            close(max(value for _, value in reserved), device["reserved_peak_bytes"], False, f"{name}: reserved")
        ran_out = trace.instants.get(f"{name}: out of memory", [])
        need(len(ran_out) == device["out_of_memory_events"], f"{name}: {len(ran_out)} times out of memory")
        if len(ran_out) == len(device["out_of_memory"]):
            for (_, _, details), event in zip(ran_out, device["out_of_memory"]):
                need(details["requested_bytes"] == event["requested_bytes"], f"{name}: requested bytes")
        dumps = trace.heaps.get(heading)
        need(dumps or max(live) == 0, f"{name} has no heap profile")
        if dumps:
            end, peak = dumps[-1], max(dumps, key=lambda dump: dump["live"])
            older = dumps[0]["live"] if live[0] else 0
            close(older, live[0], estimated, f"{name}: older than the trace")
            close(end["allocated"] - older, in_all["requested_bytes"], estimated, f"{name}: allocated in all")
            close(end["live"], at_end["requested_bytes"], estimated, f"{name}: the last dump")
            close(end["allocations"] - end["frees"], at_end["count"], estimated, f"{name}: blocks at the end")
            close(peak["live"], at_peak["requested_bytes"], estimated, f"{name}: the peak's dump")
            close(peak["allocations"] - peak["frees"], at_peak["count"], estimated, f"{name}: blocks at the peak")
    return len(summary), trace


def main():
    command, *snapshots = sys.argv[1:]
    snapshots = snapshots or sorted(file for pattern in FIXTURES for file in WORKSPACE.glob(pattern))
    passed = failed = slices = 0
    with tempfile.TemporaryDirectory() as folder:
        for snapshot in snapshots:
            try:
                compared, trace = check(command, snapshot, folder)
                slices += len(trace.slices)
                passed += 1
                print(f"{snapshot}: {compared} devices, {len(trace.slices)} slices, {len(trace.heaps)} heaps")
            except (Wrong, KeyError, subprocess.CalledProcessError) as wrong:
                failed += 1
                more = getattr(wrong, "stderr", b"") or b""
                print(f"{snapshot}: {wrong} {more.decode()}", file=sys.stderr)
    print(f"{passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
