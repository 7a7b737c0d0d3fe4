//! Text: values as people read them.

pub mod byte_size;
pub mod function_lines;
pub mod tensor_elements;
pub mod timestamp;
pub mod visible;
