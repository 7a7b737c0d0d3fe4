//! A target that is a capture file: a process as it was.

use std::path::Path;

use probing_capture::{Capture, CaptureError};
use probing_proto::capture::Excerpt;
use probing_proto::process::Pid;
use probing_proto::report::{BacktraceReport, FrameType, ReportedThread, TasksReport};

use crate::error::ClientError;
use crate::stacks::{LocalValues, StackQuery, select};

/// The stacks of a capture, as far as they are asked for.
#[derive(Debug)]
pub(crate) struct CapturedStacks {
    capture: Capture,
    query: StackQuery,
}

impl CapturedStacks {
    pub(crate) fn open(path: &Path, query: &StackQuery) -> Result<Self, CaptureError> {
        Ok(Self {
            capture: Capture::open(path)?,
            query: query.clone(),
        })
    }

    pub(crate) fn pid(&self) -> Pid {
        self.capture.manifest().pid
    }

    /// The file has everything; what was not asked for is left out.
    pub(crate) fn read(&self) -> Result<BacktraceReport, ClientError> {
        let mut report = self.capture.stacks()?;
        for thread in &mut report.threads {
            if !self.query.native {
                let frames = &mut thread.frames;
                frames.retain(|frame| frame.frame_type == FrameType::Python);
                for (depth, frame) in frames.iter_mut().enumerate() {
                    frame.depth = depth;
                }
            }
            if self.query.locals == LocalValues::Omitted {
                for frame in &mut thread.frames {
                    (frame.locals, frame.more_locals) = (None, 0);
                }
            }
        }
        self.show_lines(&mut report);
        if !self.query.native {
            // Threads that Python does not know.
            report.threads.retain(|thread| thread.ident != 0);
        }
        let filter = &self.query.threads;
        report.threads = select(
            report.threads,
            filter,
            ReportedThread::names,
            ReportedThread::title,
        )?;
        Ok(report)
    }

    /// One that the process wrote itself has the source apart from its frames.
    fn show_lines(&self, report: &mut BacktraceReport) {
        let frames = report.threads.iter_mut().flat_map(|it| &mut it.frames);
        let mut without = frames.filter(|frame| frame.source.is_none()).peekable();
        if without.peek().is_none() {
            return;
        }
        let sources = self.sources();
        for frame in without {
            let Some(line) = frame.lineno else { continue };
            let excerpts = sources.iter().filter(|it| *it.file == *frame.file);
            let mut lines = excerpts.filter_map(|it| {
                let place = line.checked_sub(it.first)?;
                it.lines.get(place as usize)
            });
            frame.source = lines.next().map(|line| line.trim().into());
        }
    }

    /// Lines around the frames; none where they were not kept.
    pub(crate) fn sources(&self) -> Vec<Excerpt> {
        self.capture.sources().unwrap_or_default()
    }

    pub(crate) fn tasks(&self) -> Result<TasksReport, ClientError> {
        Ok(self.capture.tasks()?)
    }
}
