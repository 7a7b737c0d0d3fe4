//! Elements of tensors as text: as Python writes numbers, from the bytes that torch keeps.

/// Size of one element in bytes, by torch's name of its type. `None` for types that are not shown.
pub fn width(dtype: &str) -> Option<usize> {
    Some(match dtype {
        "bool" | "int8" | "uint8" => 1,
        "int16" | "uint16" | "float16" | "bfloat16" => 2,
        "int32" | "uint32" | "float32" => 4,
        "int64" | "uint64" | "float64" => 8,
        _ => return None,
    })
}

/// One element. `None` for other types, and for bytes that are not exactly one element.
pub fn element(dtype: &str, bytes: &[u8]) -> Option<String> {
    macro_rules! number {
        ($kind:ty) => {
            <$kind>::from_le_bytes(bytes.try_into().ok()?)
        };
    }
    Some(match dtype {
        "bool" => if number!(u8) == 0 { "False" } else { "True" }.to_owned(),
        "int8" => number!(i8).to_string(),
        "uint8" => number!(u8).to_string(),
        "int16" => number!(i16).to_string(),
        "uint16" => number!(u16).to_string(),
        "int32" => number!(i32).to_string(),
        "uint32" => number!(u32).to_string(),
        "int64" => number!(i64).to_string(),
        "uint64" => number!(u64).to_string(),
        "float16" => float(half(number!(u16))),
        "bfloat16" => float(f32::from_bits(u32::from(number!(u16)) << 16)),
        "float32" => float(number!(f32)),
        "float64" => float(number!(f64)),
        _ => return None,
    })
}

/// A tensor without dimensions by its value: `tensor(0.25)`, or `Parameter(0.25)`. The type is left out where torch leaves
/// it out.
pub fn scalar(class: &str, dtype: &str, bytes: &[u8]) -> Option<String> {
    let value = element(dtype, bytes)?;
    let name = if class == "Tensor" { "tensor" } else { class };
    Some(match dtype {
        "float32" | "int64" | "bool" => format!("{name}({value})"),
        _ => format!("{name}({value}, dtype={dtype})"),
    })
}

fn float(number: impl std::fmt::Debug) -> String {
    // Rust writes as many digits as needed to read the same number, as Python does.
    format!("{number:?}").replace("NaN", "nan")
}

/// `float16`: shifted into the place of an `f32`, the number is 2^-112 of what it is.
fn half(bits: u16) -> f32 {
    let magnitude = u32::from(bits & 0x7fff) << 13;
    let is_finite = bits & 0x7c00 != 0x7c00;
    let wide = if is_finite {
        f32::from_bits(magnitude) * f32::from_bits((127 + 112) << 23)
    } else {
        f32::from_bits(magnitude | 0x7f80_0000)
    };
    if bits & 0x8000 == 0 { wide } else { -wide }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(dtype: &str, bytes: &[u8], text: &str) {
        assert_eq!(width(dtype), Some(bytes.len()));
        assert_eq!(element(dtype, bytes).as_deref(), Some(text));
    }

    #[test]
    fn elements_are_written_as_python_writes_numbers() {
        check("bool", &[1], "True");
        check("int8", &[0xff], "-1");
        check("uint8", &[0xff], "255");
        check("int64", &(-3_i64).to_le_bytes(), "-3");
        check("float32", &0.1_f32.to_le_bytes(), "0.1");
        check("float64", &2.0_f64.to_le_bytes(), "2.0");
        check("float32", &f32::NAN.to_le_bytes(), "nan");
        check("float32", &f32::NEG_INFINITY.to_le_bytes(), "-inf");
        check("float16", &0x3400_u16.to_le_bytes(), "0.25");
        check("float16", &0xc000_u16.to_le_bytes(), "-2.0");
        check("float16", &0x7c00_u16.to_le_bytes(), "inf");
        check("bfloat16", &0x3e80_u16.to_le_bytes(), "0.25");
        assert_eq!(element("float32", &[0; 8]), None);
        assert_eq!(element("complex64", &[0; 8]), None);
    }

    #[test]
    fn a_scalar_is_written_as_torch_writes_it() {
        let bytes = 0.25_f32.to_le_bytes();
        let text = |class| scalar(class, "float32", &bytes).unwrap();
        assert_eq!(text("Tensor"), "tensor(0.25)");
        assert_eq!(text("Parameter"), "Parameter(0.25)");
        let other = scalar("Tensor", "int32", &7_i32.to_le_bytes());
        assert_eq!(other.as_deref(), Some("tensor(7, dtype=int32)"));
    }
}
