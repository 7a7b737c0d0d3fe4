//! What points do beside stopping: log lines and snapshots, as rows of `python.captures`.

use std::sync::Arc;

use probing_proto::message::breakpoints::{Action, BreakpointEvent, BreakpointId};
use probing_proto::message::fit;
use pyo3::prelude::*;

use crate::breakpoints::evaluations::{EvaluationKind, NoValue, evaluate};
use crate::breakpoints::registry::Breakpoint;
use crate::breakpoints::{events, interrupts, of_this_process, sessions};
use crate::inspect::locals;
use crate::python::current_thread;
use crate::python::frame;
use crate::python::text::text_of;
use crate::recording::{Capture, capture};

/// Frames of one snapshot.
const MAX_FRAMES: usize = 30;
/// A row holds no more text than that.
const MAX_TEXT: usize = 16 << 10;

/// Does what a point is to do, unless there was too much of it in this second.
/// The line is said where it is known: a frame that begins a function is at its `def`, and to find out takes a while.
pub(crate) fn act(at: (&Bound<'_, PyAny>, Option<u32>), point: &Arc<Breakpoint>) {
    match &point.request.action {
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

fn log((frame, line): (&Bound<'_, PyAny>, Option<u32>), point: &Arc<Breakpoint>) {
    let py = frame.py();
    let Some(expression) = &point.text else {
        return;
    };
    let text = match evaluate(py, point, EvaluationKind::LogText, || {
        expression.value(frame)
    }) {
        Ok(text) => text_of(&text),
        Err(NoValue::Interrupted) => return,
        Err(NoValue::Raised(error)) => format!("<raised {}>", events::in_words(py, error)),
    };
    let text = cut(with_warnings(text, &expression.warnings_to_log()));
    let at = frame::spot_at(frame, line);
    let thread_name = current_thread::name(py);
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
        of_this_process().announce(&BreakpointEvent::Logged {
            point: point.id,
            text,
            at,
            thread_name,
        });
    }
}

/// A log line with what Python warned of meanwhile, each warning in the first line that met it.
fn with_warnings(text: String, warnings: &[String]) -> String {
    warnings
        .iter()
        .fold(text, |text, warning| format!("{text} <warned {warning}>"))
}

/// Records the stack with bounded locals.
pub(crate) fn keep(
    (frame, line): (&Bound<'_, PyAny>, Option<u32>),
    point: Option<BreakpointId>,
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
            thread_name: &current_thread::name(frame.py()),
            at: Some(&frame::spot_at(frame, line)),
            frames: frames.as_deref(),
        },
    );
}

/// A stack with bounded locals, as JSON. Tells as many frames as fit a row.
pub(crate) fn frames_told(stack: &[Bound<'_, PyAny>]) -> Option<String> {
    let py = stack.first()?.py();
    let mut told = interrupts::own(
        py,
        locals::describe_frames(&stack[..stack.len().min(MAX_FRAMES)]),
    )?;
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
