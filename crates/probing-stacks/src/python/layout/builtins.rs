//! Where the fields of built-in objects are.
//!
//! Most follow the header of every object at once, in an order that has not changed since 3.10. Printed by a C program
//! of `offsetof`s with the headers of 3.10.13, 3.11.7, 3.12.1 and 3.13.0; what 3.13 and later publish is taken from
//! there.

/// Offsets in bytes in objects of these types.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Builtins {
    /// Of every object: what comes first after reference count and type.
    pub(crate) header: usize,
    pub(crate) class: Class,
    pub(crate) tuple_items: usize,
    pub(crate) list_items: usize,
    pub(crate) dict_keys: usize,
    pub(crate) dict_values: usize,
    pub(crate) float_value: usize,
    /// Number of digits and sign.
    pub(crate) int_size: usize,
    pub(crate) int_digits: usize,
}

/// In a type object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Class {
    pub(crate) name: usize,
    pub(crate) flags: usize,
    /// Of a type that is built in. One that was made by a `class` statement goes on after it.
    pub(crate) size: usize,
}

impl Class {
    pub(crate) fn basic_size(&self) -> usize {
        self.name + 8
    }

    pub(crate) fn base(&self) -> usize {
        self.name + 232
    }

    pub(crate) fn item_size(&self) -> usize {
        self.name + 16
    }

    /// The dictionary of a class.
    pub(crate) fn namespace(&self) -> usize {
        self.name + 240
    }

    pub(crate) fn dict_offset(&self) -> usize {
        self.name + 264
    }

    /// 55 pointers to functions and the short name come before it.
    pub(crate) fn qualified_name(&self) -> usize {
        self.size + 456
    }

    pub(crate) fn cached_keys(&self) -> usize {
        self.size + 464
    }
}

impl Builtins {
    /// Of a version that publishes nothing. 3.12 added a field to types.
    pub(super) const fn of(version: u8) -> Self {
        Self {
            header: 16,
            class: Class {
                name: 24,
                flags: 168,
                size: if version >= 12 { 416 } else { 408 },
            },
            tuple_items: 24,
            list_items: 24,
            dict_keys: 32,
            dict_values: 40,
            float_value: 16,
            int_size: 16,
            int_digits: 24,
        }
    }

    pub(crate) fn dict_used(&self) -> usize {
        self.header
    }

    /// Then the mask of the table and its address.
    pub(crate) fn set_used(&self) -> usize {
        self.header + 8
    }

    pub(crate) fn cell_content(&self) -> usize {
        self.header
    }

    pub(crate) fn function_qualified_name(&self) -> usize {
        self.header + 24
    }

    /// The function of a method, the description of a function in C.
    pub(crate) fn method_function(&self) -> usize {
        self.header
    }

    pub(crate) fn exception_arguments(&self) -> usize {
        self.header + 8
    }

    pub(crate) fn module_name(&self) -> usize {
        self.header + 32
    }
}
