//! `duration(nanoseconds)`: a time as people read it.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, AsArray as _, StringViewArray};
use datafusion::arrow::datatypes::{DataType, Float64Type, Int64Type};
use datafusion::common::Result;
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDFImpl, Signature, TypeSignature, Volatility,
};

#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct Duration {
    signature: Signature,
}

impl Duration {
    pub(super) fn new() -> Self {
        let exact = |kind| TypeSignature::Exact(vec![kind]);
        let types = vec![exact(DataType::Int64), exact(DataType::Float64)];
        Self {
            signature: Signature::one_of(types, Volatility::Immutable),
        }
    }
}

impl ScalarUDFImpl for Duration {
    fn name(&self) -> &'static str {
        "duration"
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8View)
    }

    fn invoke_with_args(&self, arguments: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let mut arrays = ColumnarValue::values_to_arrays(&arguments.args)?;
        let nanos = arrays.remove(0);
        let texts: StringViewArray = if *nanos.data_type() == DataType::Float64 {
            let nanos = nanos.as_primitive::<Float64Type>();
            nanos.iter().map(|nanos| nanos.map(format_nanos)).collect()
        } else {
            let nanos = nanos.as_primitive::<Int64Type>();
            nanos
                .iter()
                .map(|nanos| nanos.map(|nanos| format_nanos(nanos as f64)))
                .collect()
        };
        Ok(ColumnarValue::Array(Arc::new(texts) as ArrayRef))
    }
}

const UNITS: [(f64, &str); 4] = [(1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns")];

/// Three digits, and two units from a minute on.
fn format_nanos(nanos: f64) -> String {
    if !nanos.is_finite() {
        return nanos.to_string();
    }
    let sign = if nanos < 0.0 { "-" } else { "" };
    let nanos = nanos.abs();
    let seconds = (nanos / 1e9).round() as u64;
    let pair = |large: u64, one: &str, other: &str| {
        let (first, second) = (seconds / large, seconds % large / (large / 60).max(1));
        format!("{sign}{first} {one} {second} {other}")
    };
    match seconds {
        86400.. => format!("{sign}{} d {} h", seconds / 86400, seconds % 86400 / 3600),
        3600.. => pair(3600, "h", "min"),
        60.. => pair(60, "min", "s"),
        _ => {
            let fits = UNITS.iter().find(|(size, _)| nanos / size >= 0.9995);
            let (size, unit) = fits.unwrap_or(&UNITS[3]);
            format!("{sign}{} {unit}", rounded(nanos / size))
        }
    }
}

fn rounded(number: f64) -> f64 {
    let digits = match number {
        number if number >= 99.95 => 1.0,
        number if number >= 9.995 => 10.0,
        _ => 100.0,
    };
    (number * digits).round() / digits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_told_in_the_unit_that_people_would_use() {
        let check = |nanos: f64, text| assert_eq!(format_nanos(nanos), text, "{nanos}");
        check(0.0, "0 ns");
        check(1.0, "1 ns");
        check(999.0, "999 ns");
        check(1500.0, "1.5 us");
        check(999_999.0, "1 ms");
        check(1_234_567.0, "1.23 ms");
        check(12_345_678.0, "12.3 ms");
        check(123_456_789.0, "123 ms");
        check(59.4e9, "59.4 s");
        check(59.9e9, "1 min 0 s");
        check(61e9, "1 min 1 s");
        check(3725e9, "1 h 2 min");
        check(90_000e9, "1 d 1 h");
        check(-1500.0, "-1.5 us");
        check(0.25, "0.25 ns");
        check(f64::NAN, "NaN");
    }
}
