//! A trace as Perfetto stores it: protocol buffers, of which we need a handful of fields.
//!
//! <https://perfetto.dev/docs/reference/trace-packet-proto> says which. Names are written once each and then by number.

use std::collections::HashMap;

use crate::commands::trace::rows::{Edge, Kind, Row, edges};
use crate::commands::trace::spans::{First, edges_of_spans};

/// Fields of the messages that we write, by number.
mod field {
    pub(super) const TRACE_PACKET: u32 = 1;

    pub(super) const PACKET_TIMESTAMP: u32 = 8;
    pub(super) const PACKET_SEQUENCE: u32 = 10;
    pub(super) const PACKET_EVENT: u32 = 11;
    pub(super) const PACKET_INTERNED: u32 = 12;
    pub(super) const PACKET_FLAGS: u32 = 13;
    pub(super) const PACKET_TRACK: u32 = 60;

    pub(super) const TRACK_UUID: u32 = 1;
    pub(super) const TRACK_NAME: u32 = 2;
    pub(super) const TRACK_PROCESS: u32 = 3;
    pub(super) const TRACK_THREAD: u32 = 4;
    pub(super) const TRACK_PARENT: u32 = 5;
    pub(super) const PROCESS_PID: u32 = 1;
    pub(super) const PROCESS_NAME: u32 = 6;
    pub(super) const THREAD_PID: u32 = 1;
    pub(super) const THREAD_TID: u32 = 2;
    pub(super) const THREAD_NAME: u32 = 5;

    pub(super) const EVENT_NOTE: u32 = 4;
    pub(super) const EVENT_TYPE: u32 = 9;
    pub(super) const EVENT_NAME: u32 = 10;
    pub(super) const EVENT_TRACK: u32 = 11;

    pub(super) const NOTE_INT: u32 = 4;
    pub(super) const NOTE_TEXT: u32 = 6;
    pub(super) const NOTE_NAME: u32 = 10;

    pub(super) const INTERNED_NAMES: u32 = 2;
    pub(super) const NAME_NUMBER: u32 = 1;
    pub(super) const NAME_TEXT: u32 = 2;
}

const BEGIN: u64 = 1;
const END: u64 = 2;
const INSTANT: u64 = 3;

/// All packets are of one sequence.
const SEQUENCE: u64 = 1;
/// The first packet forgets names of before; the others rely on what came before.
const FORGETS: u64 = 1;
const RELIES: u64 = 2;

/// A message on its way.
#[derive(Default)]
struct Bytes(Vec<u8>);

impl Bytes {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn number(&mut self, field: u32, value: u64) {
        self.varint(u64::from(field) << 3);
        self.varint(value);
    }

    fn bytes(&mut self, field: u32, bytes: &[u8]) {
        self.varint(u64::from(field) << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend_from_slice(bytes);
    }

    fn message(&mut self, field: u32, fill: impl FnOnce(&mut Self)) {
        let mut inner = Self::default();
        fill(&mut inner);
        self.bytes(field, &inner.0);
    }
}

/// A file for <https://ui.perfetto.dev>.
pub(super) fn file(rows: &[Row]) -> Vec<u8> {
    let mut writer = Writer::default();
    for edge in edges(rows) {
        match edge {
            Edge::Open(row) => writer.event(row, row.at, BEGIN, None),
            Edge::Close(at, row) => writer.event(row, at, END, None),
        }
    }
    for (lane, edge) in edges_of_spans(rows, First::Spans) {
        let (row, at, kind) = match edge {
            Edge::Open(row) => (row, row.at, BEGIN),
            Edge::Close(at, row) => (row, at, END),
        };
        let track = writer.track_of_spans(row, lane);
        writer.event(row, at, kind, Some(track));
    }
    for row in rows.iter().filter(|row| row.kind == Kind::Event) {
        writer.event(row, row.at, INSTANT, None);
    }
    writer.out.0
}

#[derive(Default)]
struct Writer {
    out: Bytes,
    names: HashMap<String, u64>,
    /// By process; thread (0 is none); lane of spans.
    tracks: HashMap<(u32, u32, Option<usize>), u64>,
}

impl Writer {
    fn event(&mut self, row: &Row, at: i64, kind: u64, track: Option<u64>) {
        let track = track.unwrap_or_else(|| self.track_of_thread(row));
        let (name, is_new) = self.name(&row.name);
        self.packet(at, |packet| {
            if is_new {
                packet.message(field::PACKET_INTERNED, |interned| {
                    interned.message(field::INTERNED_NAMES, |entry| {
                        entry.number(field::NAME_NUMBER, name);
                        entry.bytes(field::NAME_TEXT, row.name.as_bytes());
                    });
                });
            }
            packet.message(field::PACKET_EVENT, |event| {
                event.number(field::EVENT_TYPE, kind);
                event.number(field::EVENT_TRACK, track);
                if kind == END {
                    return;
                }
                event.number(field::EVENT_NAME, name);
                if !row.file.is_empty() {
                    note(event, "file", |note| {
                        note.bytes(field::NOTE_TEXT, row.file.as_bytes());
                    });
                    note(event, "line", |note| {
                        note.number(field::NOTE_INT, row.line.into());
                    });
                }
                if let Some(step) = row.step {
                    note(event, "step", |note| {
                        note.number(field::NOTE_INT, step.cast_unsigned());
                    });
                }
            });
        });
    }

    fn packet(&mut self, at: i64, fill: impl FnOnce(&mut Bytes)) {
        let flags = if self.out.0.is_empty() {
            FORGETS | RELIES
        } else {
            RELIES
        };
        self.out.message(field::TRACE_PACKET, |packet| {
            packet.number(field::PACKET_TIMESTAMP, at.cast_unsigned());
            packet.number(field::PACKET_SEQUENCE, SEQUENCE);
            packet.number(field::PACKET_FLAGS, flags);
            fill(packet);
        });
    }

    fn name(&mut self, name: &str) -> (u64, bool) {
        if let Some(number) = self.names.get(name) {
            return (*number, false);
        }
        let number = self.names.len() as u64 + 1;
        self.names.insert(name.to_owned(), number);
        (number, true)
    }

    fn track_of_process(&mut self, row: &Row) -> u64 {
        self.track((row.pid, 0, None), row.at, |track| {
            track.message(field::TRACK_PROCESS, |process| {
                process.number(field::PROCESS_PID, row.pid.into());
                if let Some(whose) = &row.whose {
                    process.bytes(field::PROCESS_NAME, whose.as_bytes());
                }
            });
        })
    }

    fn track_of_thread(&mut self, row: &Row) -> u64 {
        let parent = self.track_of_process(row);
        self.track((row.pid, row.thread, None), row.at, |track| {
            track.number(field::TRACK_PARENT, parent);
            track.message(field::TRACK_THREAD, |thread| {
                thread.number(field::THREAD_PID, row.pid.into());
                thread.number(field::THREAD_TID, row.thread.into());
                if let Some(name) = &row.thread_name {
                    thread.bytes(field::THREAD_NAME, name.as_bytes());
                }
            });
        })
    }

    /// Tracks of one name are shown as one.
    fn track_of_spans(&mut self, row: &Row, lane: usize) -> u64 {
        let thread = self.track_of_thread(row);
        self.track((row.pid, row.thread, Some(lane)), row.at, |track| {
            track.number(field::TRACK_PARENT, thread);
            track.bytes(field::TRACK_NAME, b"spans");
        })
    }

    fn track(
        &mut self,
        key: (u32, u32, Option<usize>),
        at: i64,
        fill: impl FnOnce(&mut Bytes),
    ) -> u64 {
        if let Some(uuid) = self.tracks.get(&key) {
            return *uuid;
        }
        let uuid = self.tracks.len() as u64 + 1;
        self.tracks.insert(key, uuid);
        self.packet(at, |packet| {
            packet.message(field::PACKET_TRACK, |track| {
                track.number(field::TRACK_UUID, uuid);
                fill(track);
            });
        });
        uuid
    }
}

fn note(event: &mut Bytes, name: &str, value: impl FnOnce(&mut Bytes)) {
    event.message(field::EVENT_NOTE, |note| {
        note.bytes(field::NOTE_NAME, name.as_bytes());
        value(note);
    });
}
