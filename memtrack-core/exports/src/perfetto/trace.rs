//! Writes trace files, which consist of packets, tracks, and the names that the events in a sequence refer to.

use super::messages::*;
use prost::Message;
use std::collections::HashMap;
use std::io::{self, Write};

/// The tag of `Trace.packet`.
const PACKET: u8 = 0x0a;

/// A writer of packets.
pub(crate) struct Trace<'a> {
    out: &'a mut dyn Write,
    buffer: Vec<u8>,
    sequences: u32,
    tracks: u64,
}

impl<'a> Trace<'a> {
    /// Creates an empty trace.
    pub(crate) fn new(out: &'a mut dyn Write) -> Self {
        Self { out, buffer: Vec::new(), sequences: 0, tracks: 0 }
    }

    /// Starts a new packet sequence and returns its ID.
    pub(crate) fn start_sequence(&mut self) -> u32 {
        self.sequences += 1;
        self.sequences
    }

    pub(crate) fn write_packet(&mut self, packet: &TracePacket) -> io::Result<()> {
        self.buffer.clear();
        self.buffer.push(PACKET);
        packet.encode_length_delimited(&mut self.buffer).map_err(io::Error::other)?;
        self.out.write_all(&self.buffer)
    }

    /// Writes a new track and returns its ID.
    pub(crate) fn write_track(&mut self, sequence: u32, track: TrackDescriptor) -> io::Result<u64> {
        self.tracks += 1;
        let track = TrackDescriptor { uuid: Some(self.tracks), ..track };
        self.write_packet(&TracePacket {
            trusted_packet_sequence_id: Some(sequence),
            data: Some(Data::TrackDescriptor(track)),
            ..TracePacket::default()
        })?;
        Ok(self.tracks)
    }
}

/// A packet sequence of events on tracks, with the names that it has interned.
pub(crate) struct Events {
    /// The ID of the sequence.
    pub(crate) sequence: u32,
    names: HashMap<String, u64>,
    categories: HashMap<&'static str, u64>,
    has_begun: bool,
}

impl Events {
    /// Creates an empty sequence.
    pub(crate) fn new(trace: &mut Trace<'_>) -> Self {
        let sequence = trace.start_sequence();
        Self { sequence, names: HashMap::new(), categories: HashMap::new(), has_begun: false }
    }

    pub(crate) fn write_event(
        &mut self,
        trace: &mut Trace<'_>,
        ns: u64,
        event: TrackEvent,
    ) -> io::Result<()> {
        self.write(trace, ns, event, None)
    }

    /// Writes the end of a track's innermost slice.
    pub(crate) fn write_end(&mut self, trace: &mut Trace<'_>, track: u64, ns: u64) -> io::Result<()> {
        let event = TrackEvent { track_uuid: Some(track), r#type: Some(SLICE_END), ..TrackEvent::default() };
        self.write(trace, ns, event, None)
    }

    /// Writes an event with a name and a category.
    pub(crate) fn write_named_event(
        &mut self,
        trace: &mut Trace<'_>,
        ns: u64,
        (name, category): (&str, &'static str),
        event: TrackEvent,
    ) -> io::Result<()> {
        let mut fresh = InternedData::default();
        let name_iid = match self.names.get(name) {
            Some(&iid) => iid,
            None => {
                let iid = self.names.len() as u64 + 1;
                self.names.insert(name.to_owned(), iid);
                fresh.event_names.push(Name { iid: Some(iid), name: Some(name.to_owned()) });
                iid
            }
        };
        let next = self.categories.len() as u64 + 1;
        let category_iid = *self.categories.entry(category).or_insert_with(|| {
            fresh.event_categories.push(Name { iid: Some(next), name: Some(category.to_owned()) });
            next
        });
        let fresh = (fresh != InternedData::default()).then_some(fresh);
        let event = TrackEvent { name_iid: Some(name_iid), category_iids: vec![category_iid], ..event };
        self.write(trace, ns, event, fresh)
    }

    fn write(
        &mut self,
        trace: &mut Trace<'_>,
        ns: u64,
        event: TrackEvent,
        interned_data: Option<InternedData>,
    ) -> io::Result<()> {
        let flags = if self.has_begun { NEEDS_INCREMENTAL_STATE } else { INCREMENTAL_STATE_CLEARED };
        self.has_begun = true;
        trace.write_packet(&TracePacket {
            timestamp: Some(ns),
            trusted_packet_sequence_id: Some(self.sequence),
            sequence_flags: Some(flags),
            interned_data,
            data: Some(Data::TrackEvent(event)),
        })
    }
}
