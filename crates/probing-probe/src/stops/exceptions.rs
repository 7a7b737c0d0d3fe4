//! Exceptions: as they are raised, by type, and those that nobody catches.

use std::sync::Arc;

use pyo3::prelude::*;

use super::armed::armed;
use super::points::Point;

/// Has a point be told of exceptions.
pub(super) fn arm(_py: Python<'_>, point: &Arc<Point>) {
    if super::events::is_of_exceptions(&point.armed.place) {
        armed().raises.push(Arc::clone(point));
    }
}

pub(super) fn disarm(_py: Python<'_>, _point: &Arc<Point>) {}

pub(super) fn forget(_py: Python<'_>) {}

/// An exception is raised in a frame.
pub(super) fn raised(_frame: &Bound<'_, PyAny>, _exception: &Bound<'_, PyAny>) {}
