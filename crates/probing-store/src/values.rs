//! Values: what a row holds, as Arrow lays it out.

pub(crate) mod bytes;
pub(crate) mod text;
pub(crate) mod value;
pub(crate) mod widen;
