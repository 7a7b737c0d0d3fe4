//! SQL functions that make long texts from short ones, with a bound on their results.
//!
//! Functions of SQL that make a text of any length from a short one, with a bound: their results are counted only
//! when they are there, and then it may be too late.

use std::sync::Arc;

use datafusion::arrow::array::AsArray as _;
use datafusion::arrow::compute::cast;
use datafusion::arrow::compute::kernels::length::length;
use datafusion::arrow::datatypes::{DataType, FieldRef, Int64Type};
use datafusion::common::{DataFusionError, Result};
use datafusion::functions::{string, unicode};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl,
    Signature,
};

/// For one batch of rows.
pub(super) const MAX_BYTES: i64 = 64 << 20;
/// Of one character, at most.
const CHARACTER_BYTES: i64 = 4;

/// What the number in a call counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Counts {
    Repetitions,
    Characters,
}

/// One of them.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Bounded {
    unbounded: Arc<ScalarUDF>,
    counts: Counts,
}

impl Bounded {
    pub(super) fn all() -> [Self; 3] {
        let bounded = |unbounded, counts| Self { unbounded, counts };
        [
            bounded(string::repeat(), Counts::Repetitions),
            bounded(unicode::lpad(), Counts::Characters),
            bounded(unicode::rpad(), Counts::Characters),
        ]
    }

    /// Bytes that a call makes, or more.
    fn bytes(&self, call: &ScalarFunctionArgs) -> Result<i64> {
        let [text, count, ..] = call.args.as_slice() else {
            return Ok(0);
        };
        let is_one = |value: &ColumnarValue| matches!(value, ColumnarValue::Scalar(_));
        let rows = if is_one(text) && is_one(count) {
            1
        } else {
            call.number_rows
        };
        let counts = cast(&count.to_array(rows)?, &DataType::Int64)?;
        let counts = counts.as_primitive::<Int64Type>().iter().flatten();
        if self.counts == Counts::Characters {
            let characters = counts.map(|count| count.max(0));
            let sum = characters.fold(0, i64::saturating_add);
            return Ok(sum.saturating_mul(CHARACTER_BYTES));
        }
        let lengths = cast(&length(&text.to_array(rows)?)?, &DataType::Int64)?;
        let counts = cast(&count.to_array(rows)?, &DataType::Int64)?;
        let lengths = lengths.as_primitive::<Int64Type>().iter();
        let pairs = lengths.zip(counts.as_primitive::<Int64Type>().iter());
        let bytes = pairs.filter_map(|(length, count)| {
            let (length, count) = length.zip(count)?;
            Some(length.saturating_mul(count.max(0)))
        });
        Ok(bytes.fold(0, i64::saturating_add))
    }
}

/// The error in place of too many bytes.
pub(super) fn too_large(name: &str, bytes: i64) -> DataFusionError {
    let most = MAX_BYTES >> 20;
    let message = format!("{name} makes more than {most} MB of text at once: {bytes} bytes");
    DataFusionError::ResourcesExhausted(message)
}

impl ScalarUDFImpl for Bounded {
    fn name(&self) -> &str {
        self.unbounded.name()
    }

    fn aliases(&self) -> &[String] {
        self.unbounded.aliases()
    }

    fn signature(&self) -> &Signature {
        self.unbounded.signature()
    }

    fn return_type(&self, types: &[DataType]) -> Result<DataType> {
        self.unbounded.inner().return_type(types)
    }

    fn return_field_from_args(&self, call: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.unbounded.inner().return_field_from_args(call)
    }

    fn invoke_with_args(&self, call: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let bytes = self.bytes(&call)?;
        if bytes > MAX_BYTES {
            return Err(too_large(self.name(), bytes));
        }
        self.unbounded.inner().invoke_with_args(call)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.unbounded.documentation()
    }
}
