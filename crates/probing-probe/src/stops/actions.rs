//! What points do beside stopping: log lines and snapshots, as rows of `python.captures`.

use std::sync::Arc;

use probing_proto::message::fit;
use probing_proto::stops::{Action, PointId, StopNews};
use pyo3::prelude::*;

use super::evaluations::{NoValue, What, evaluate};
use super::frame;
use super::points::Point;
use super::{events, of_this_process, sessions, signals, thread};
use crate::locals;
use crate::recording::{Capture, capture};
use crate::traceback::text_of;

/// Frames of one snapshot.
const MAX_FRAMES: usize = 30;
/// A row holds no more text than that.
const MAX_TEXT: usize = 16 << 10;

/// Does what a point is to do, unless there was too much of it in this second.
/// The line is said where it is known: a frame that begins a function is at its `def`, and to find out takes a while.
pub(super) fn act(at: (&Bound<'_, PyAny>, Option<u32>), point: &Arc<Point>) {
    match &point.armed.action {
        Action::Stop | Action::Count => {}
        Action::Log { .. } => {
            if point.has_room() {
                log(at, point);
            }
        }
        Action::Snapshot => {
            if point.has_room() {
                keep(at, Some(point.id), "snapshot", None);
            }
        }
    }
}

fn log((frame, line): (&Bound<'_, PyAny>, Option<u32>), point: &Arc<Point>) {
    let py = frame.py();
    let Some(text) = &point.text else {
        return;
    };
    let text = match evaluate(py, point, What::LogText, || text.value(frame)) {
        Ok(text) => text_of(&text),
        Err(NoValue::Interrupted) => return,
        Err(NoValue::Raised(error)) => format!("<raised {}>", events::in_words(py, error)),
    };
    let text = cut(text);
    let at = frame::spot_at(frame, line);
    let thread_name = thread::name(py);
    capture(
        py,
        &Capture {
            point: Some(point.id.0),
            kind: "log",
            text: Some(&text),
            thread_name: &thread_name,
            at: Some(&at),
            frames: None,
        },
    );
    if sessions::are_followed() {
        of_this_process().announce(&StopNews::Logged {
            point: point.id,
            text,
            at,
            thread_name,
        });
    }
}

/// Records the stack with bounded locals.
pub(super) fn keep(
    (frame, line): (&Bound<'_, PyAny>, Option<u32>),
    point: Option<PointId>,
    kind: &'static str,
    text: Option<&str>,
) {
    let frames = frames_told(&frame::stack(frame));
    capture(
        frame.py(),
        &Capture {
            point: point.map(|point| point.0),
            kind,
            text,
            thread_name: &thread::name(frame.py()),
            at: Some(&frame::spot_at(frame, line)),
            frames: frames.as_deref(),
        },
    );
}

/// A stack with bounded locals, as JSON. Tells as many frames as fit a row.
pub(super) fn frames_told(stack: &[Bound<'_, PyAny>]) -> Option<String> {
    let py = stack.first()?.py();
    let mut told = signals::own(py, locals::told(&stack[..stack.len().min(MAX_FRAMES)]))?;
    loop {
        let text = serde_json::to_string(&told).ok()?;
        if text.len() <= MAX_TEXT || told.is_empty() {
            return Some(text);
        }
        // The innermost say most.
        let fewer = told.len() / 2;
        if fewer == 0 {
            for frame in &mut told {
                frame.locals = None;
            }
            let text = serde_json::to_string(&told).ok()?;
            return (text.len() <= MAX_TEXT).then_some(text);
        }
        told.truncate(fewer);
    }
}

fn cut(text: String) -> String {
    let mut text = fit(text);
    if text.len() > MAX_TEXT {
        text.truncate(text.floor_char_boundary(MAX_TEXT));
        text.push('…');
    }
    text
}
