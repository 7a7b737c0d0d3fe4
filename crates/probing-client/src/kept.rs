//! A target that is a capture file: a process as it was.

use std::path::Path;

use probing_capture::{Capture, CaptureError};
use probing_proto::process::Pid;
use probing_proto::report::{BacktraceReport, FrameType, TasksReport};

use crate::error::ClientError;
use crate::stacks::StackQuery;

/// The stacks of a capture, as far as they are asked for.
#[derive(Debug)]
pub(crate) struct Kept {
    capture: Capture,
    query: StackQuery,
}

impl Kept {
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
            if !self.query.locals {
                for frame in &mut thread.frames {
                    (frame.locals, frame.more_locals) = (None, 0);
                }
            }
        }
        if !self.query.native {
            // Threads that Python does not know.
            report.threads.retain(|thread| thread.ident != 0);
        }
        Ok(report)
    }

    pub(crate) fn tasks(&self) -> Result<TasksReport, ClientError> {
        Ok(self.capture.tasks()?)
    }
}
