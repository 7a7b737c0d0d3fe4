//! The sealing of a full chunk: statistics of its columns, for readers.

use std::sync::atomic::Ordering;

use crate::ring::header::{SEALED, TS_MAX, TS_MIN};
use crate::ring::layout::Layout;
use crate::ring::packed;
use crate::ring::zones::{self, Tally, Zone};
use crate::writer::{WritePosition, Writer};

impl Writer {
    /// Notes what is known of the columns of a chunk that gets no more rows.
    pub(super) fn seal(&mut self) {
        let (head, chunk, row) = (self.at.head, self.at.chunk, self.at.row);
        if self.is_packed {
            // Readers of a chunk that is not sealed find them in its rows.
            (self.at.ts_min, self.at.ts_max) = self.times_traced();
            self.memory.put(head + TS_MIN, self.at.ts_min);
            self.memory.put(head + TS_MAX, self.at.ts_max);
        }
        for column in 0..self.layout.slabs.len() {
            let (zone, tally) = match column {
                0 => self.time(),
                packed::DURATION if self.is_packed => (None, self.ended()),
                _ if self.is_packed && packed::is_taken_apart(column) => (None, Tally::NOTHING),
                _ => zones::of_column(&self.memory, &self.layout, chunk, column, row),
            };
            let zone = zone.map_or(Zone::UNKNOWN, Zone::to_words);
            let words = zone.into_iter().chain(tally.to_words());
            for (offset, word) in (Layout::zone(column)..).step_by(8).zip(words) {
                self.memory.put(head + offset, word);
            }
        }
        let sealed = self.memory.word32(head + SEALED);
        sealed.store(1, Ordering::Release);
    }

    /// Of rows of tracers: how many of them are two, since what begins there ended in time.
    fn ended(&self) -> Tally {
        Tally {
            values: self.traced.ended,
            sum: None,
        }
    }

    /// That of the time is known already.
    fn time(&self) -> (Option<Zone>, Tally) {
        let WritePosition {
            ts_min,
            ts_max,
            row,
            ..
        } = self.at;
        let zone = if row == 0 {
            Zone::Empty
        } else {
            Zone::Int {
                min: ts_min,
                max: ts_max,
            }
        };
        let tally = Tally {
            values: row,
            sum: None,
        };
        (Some(zone), tally)
    }
}
