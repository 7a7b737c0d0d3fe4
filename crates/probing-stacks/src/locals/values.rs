//! Values in words: as `repr` writes them where nothing must run for it, cut to limits.

use std::fmt::Write as _;
use std::rc::Rc;

use crate::locals::{LocalLimits, UNREADABLE, ValueText, quoted};
use crate::python::objects::{Gap, Integer, Items, Pairs, ReadResult, Type, View, push_float};

/// Of one variable, in bytes: then containers are cut short.
const MAX_VALUE: usize = 4 << 10;
/// Types whose instances never change.
const FIXED: u64 = Type::INT | Type::TUPLE | Type::BYTES | Type::TEXT;
/// Of an object of a data class.
const MAX_FIELDS: usize = 20;

/// What is written on, to be used again.
#[derive(Debug, Default)]
pub(super) struct WriteBuffer {
    /// Containers that the one being written is in.
    around: Vec<u64>,
    /// All parts are written to its end: a string for each would cost more than reading them.
    text: String,
}

/// Writes one value.
pub(super) struct Values<'a, 'v> {
    view: &'a View<'v>,
    limits: &'a LocalLimits,
    around: &'a mut Vec<u64>,
    text: &'a mut String,
    whole: bool,
    fixed: bool,
}

impl<'a, 'v> Values<'a, 'v> {
    pub(super) fn new(
        view: &'a View<'v>,
        limits: &'a LocalLimits,
        paper: &'a mut WriteBuffer,
    ) -> Self {
        let WriteBuffer { around, text } = paper;
        around.clear();
        text.clear();
        Self {
            view,
            limits,
            around,
            text,
            whole: true,
            fixed: true,
        }
    }

    pub(super) fn write(mut self, object: u64) -> ReadResult<ValueText> {
        let class = self.view.type_of(object)?;
        self.of_type(object, &class)?;
        Ok(ValueText {
            text: self.text.as_str().into(),
            kind: Some(class.name.clone()),
            whole: self.whole,
            fixed: self.fixed,
        })
    }

    fn value(&mut self, object: u64) -> ReadResult<()> {
        let class = self.view.type_of(object)?;
        self.of_type(object, &class)
    }

    fn of_type(&mut self, object: u64, class: &Rc<Type>) -> ReadResult<()> {
        if self.around.contains(&object) {
            let (open, close) = brackets(class);
            self.add(format_args!("{open}...{close}"));
            return Ok(());
        }
        self.around.push(object);
        self.fixed &= class.has(FIXED) || self.is_plain(object, class);
        let done = self.known_type(object, class);
        self.around.pop();
        done
    }

    /// Whether it never changes, other than by its parts.
    fn is_plain(&self, object: u64, class: &Type) -> bool {
        let types = &self.view.interpreter.types;
        let plain = [types.float, types.complex, types.boolean, types.range];
        object == types.none || plain.contains(&class.address)
    }

    /// A value in another one.
    fn part(&mut self, object: u64) -> ReadResult<()> {
        let start = self.text.len();
        match self.value(object) {
            Err(Gap::Wrong) => {
                self.whole = false;
                self.text.truncate(start);
                self.text.push_str(UNREADABLE);
                Ok(())
            }
            other => other,
        }
    }

    fn add(&mut self, words: std::fmt::Arguments<'_>) {
        // Writing to a String does not fail.
        _ = self.text.write_fmt(words);
    }

    fn known_type(&mut self, object: u64, class: &Rc<Type>) -> ReadResult<()> {
        let types = &self.view.interpreter.types;
        let builtins = &self.view.interpreter.layout.builtins;
        match class.address {
            _ if object == types.none => self.text.push_str("None"),
            _ if object == types.ellipsis => self.text.push_str("Ellipsis"),
            _ if object == types.not_implemented => self.text.push_str("NotImplemented"),
            address if address == types.boolean => {
                let is_true = self.view.known_integer(object)? == Integer::Small(1);
                self.text.push_str(if is_true { "True" } else { "False" });
            }
            address if address == types.float => push_float(self.text, self.view.float(object)?),
            address if address == types.complex => self.complex(object)?,
            address if address == types.range => self.range(object)?,
            address if address == types.set || address == types.frozen_set => {
                let members = self.view.members(object, self.wanted())?;
                self.set(class, members)?;
            }
            address if address == types.function => {
                let name = self.view.word(object, builtins.function_qualified_name())?;
                let name = self.name(name)?;
                self.add(format_args!("<function {name}>"));
            }
            address if address == types.method => {
                let function = self.view.word(object, builtins.method_function())?;
                self.text.push_str("<bound method of ");
                self.value(function)?;
                self.text.push('>');
            }
            address if address == types.c_function => {
                let description = self.view.word(object, builtins.method_function())?;
                let name = self.view.c_string(self.view.word(description, 0)?)?;
                self.add(format_args!("<built-in function {name}>"));
            }
            address if address == types.module => {
                let name = self.view.word(object, builtins.module_name())?;
                let name = self.name(name)?;
                self.add(format_args!("<module '{name}'>"));
            }
            _ => self.derived(object, class)?,
        }
        Ok(())
    }

    /// Types that others derive from.
    fn derived(&mut self, object: u64, class: &Rc<Type>) -> ReadResult<()> {
        let exact = || !class.is_heap() && matches!(&*class.name, "dict" | "tuple");
        if self.is_enum(class)? && self.member(object, class)? {
            return Ok(());
        }
        if class.has(Type::INT) {
            self.integer(object)?;
        } else if class.has(Type::TEXT) {
            let limit = self.limits.text;
            let characters = self.view.known_characters(object, class, limit)?;
            quoted::push_text(self.text, &characters);
        } else if class.has(Type::BYTES) {
            let (first, count) = self.view.byte_string(object, self.limits.text)?;
            quoted::push_bytes(self.text, &first, count);
        } else if class.has(Type::LIST | Type::TUPLE) {
            let items = self.view.items(object, self.wanted())?;
            if !class.has(Type::LIST) && !exact() {
                self.text.push_str(&class.name);
            }
            self.sequence(class, items)?;
        } else if class.has(Type::DICT) {
            let pairs = self.view.pairs(object, self.wanted())?;
            self.named(class, !exact(), |values| values.dict(pairs))?;
        } else if class.has(Type::EXCEPTION) {
            let arguments = self.view.interpreter.layout.builtins.exception_arguments();
            let arguments = self.view.word(object, arguments)?;
            let items = self.view.items(arguments, self.wanted())?;
            self.named(class, true, |values| {
                values.items(items.first, items.count).map(drop)
            })?;
        } else if class.has(Type::TYPE) {
            let name = &self.view.type_at(object)?.name;
            self.add(format_args!("<class '{name}'>"));
        } else if class.is_heap() && self.may_go_deeper() && self.view.is_data_class(class)? {
            self.data_class(object, class)?;
        } else if let Some(tensor) = self.view.tensor(object, class)? {
            self.add(format_args!("{}", tensor.shown(&class.name)));
        } else {
            self.add(format_args!("<{} object at {object:#x}>", class.name));
        }
        Ok(())
    }

    /// `content`, or `name(content)`.
    fn named(
        &mut self,
        class: &Type,
        named: bool,
        content: impl FnOnce(&mut Self) -> ReadResult<()>,
    ) -> ReadResult<()> {
        if !named {
            return content(self);
        }
        self.add(format_args!("{}(", class.name));
        content(self)?;
        self.text.push(')');
        Ok(())
    }

    /// How many items of the container being written are wanted: none in the deepest.
    fn wanted(&self) -> usize {
        if self.may_go_deeper() {
            self.limits.items
        } else {
            0
        }
    }

    fn may_go_deeper(&self) -> bool {
        self.around.len() <= self.limits.depth
    }

    fn integer(&mut self, object: u64) -> ReadResult<()> {
        match self.view.known_integer(object)? {
            Integer::Small(value) => {
                let mut digits = itoa::Buffer::new();
                self.shortened(digits.format(value));
            }
            Integer::Written(text) => self.shortened(&text),
            Integer::Bits(bits) => self.add(format_args!("<int of about {bits} bits>")),
        }
        Ok(())
    }

    fn shortened(&mut self, number: &str) {
        match number.split_at_checked(self.limits.text) {
            Some((first, rest)) if !rest.is_empty() => {
                self.add(format_args!("{first}… ({} more)", rest.len()));
            }
            _ => self.text.push_str(number),
        }
    }

    fn complex(&mut self, object: u64) -> ReadResult<()> {
        let at = self.view.interpreter.layout.builtins.header;
        let part = |offset| self.view.word(object, at + offset).map(f64::from_bits);
        let text = |value: f64| {
            let mut text = String::new();
            push_float(&mut text, value);
            text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
        };
        let (real, imaginary) = (part(0)?, part(8)?);
        let (first, second) = (text(real), text(imaginary));
        if real == 0.0 && real.is_sign_positive() {
            self.add(format_args!("{second}j"));
            return Ok(());
        }
        let sign = if imaginary.is_sign_negative() && !imaginary.is_nan() {
            ""
        } else {
            "+"
        };
        self.add(format_args!("({first}{sign}{second}j)"));
        Ok(())
    }

    fn range(&mut self, object: u64) -> ReadResult<()> {
        let at = self.view.interpreter.layout.builtins.header;
        let start = object.checked_add(at as u64).ok_or(Gap::Wrong)?;
        let parts = self.view.words(start, 3)?;
        self.text.push_str("range(");
        self.items(parts, 3)?;
        if self.text.ends_with(", 1") {
            self.text.truncate(self.text.len() - ", 1".len());
        }
        self.text.push(')');
        Ok(())
    }

    /// Items with commas between them; how many were left out of `count`, which is said, too.
    fn items(&mut self, items: Vec<u64>, count: usize) -> ReadResult<usize> {
        self.each(items, count, Self::part)
    }

    fn each<T>(
        &mut self,
        items: Vec<T>,
        count: usize,
        write: impl Fn(&mut Self, T) -> ReadResult<()>,
    ) -> ReadResult<usize> {
        let (mut shown, mut gap) = (0, None);
        for item in items {
            if self.text.len() > MAX_VALUE {
                break;
            }
            if shown > 0 {
                self.text.push_str(", ");
            }
            // All are looked at even if one is not there yet: so what is missing of the others is known, too.
            match write(self, item) {
                Ok(()) => shown += 1,
                Err(other) => gap = gap.max(Some(other)),
            }
        }
        if let Some(gap) = gap {
            return Err(gap);
        }
        let more = count.saturating_sub(shown);
        if more > 0 {
            let between = if shown > 0 { ", " } else { "" };
            self.add(format_args!("{between}… {more} more"));
        }
        Ok(more)
    }

    fn sequence(&mut self, class: &Type, items: Items) -> ReadResult<()> {
        let (open, close) = brackets(class);
        self.text.push(open);
        let more = self.items(items.first, items.count)?;
        if items.count == 1 && class.has(Type::TUPLE) && more == 0 {
            self.text.push(',');
        }
        self.text.push(close);
        Ok(())
    }

    fn set(&mut self, class: &Type, members: Items) -> ReadResult<()> {
        if members.count == 0 {
            self.add(format_args!("{}()", class.name));
            return Ok(());
        }
        let exact = class.address == self.view.interpreter.types.set;
        self.named(class, !exact, |values| {
            values.text.push('{');
            values.items(members.first, members.count)?;
            values.text.push('}');
            Ok(())
        })
    }

    fn dict(&mut self, pairs: Pairs) -> ReadResult<()> {
        self.text.push('{');
        self.pairs(pairs, ": ", Self::part)?;
        self.text.push('}');
        Ok(())
    }

    fn pairs(
        &mut self,
        pairs: Pairs,
        between: &str,
        key: impl Fn(&mut Self, u64) -> ReadResult<()>,
    ) -> ReadResult<usize> {
        self.each(pairs.first, pairs.count, |values, (name, value)| {
            let name = key(values, name);
            values.text.push_str(between);
            let value = values.part(value);
            let gap = name.err().max(value.err());
            gap.map_or(Ok(()), Err)
        })
    }

    fn data_class(&mut self, object: u64, class: &Type) -> ReadResult<()> {
        let wanted = self.wanted().min(MAX_FIELDS);
        let pairs = self.view.attributes(object, wanted)?;
        self.named(class, true, |values| {
            let key = |values: &mut Self, name: u64| {
                let name = values.name(name)?;
                values.text.push_str(&name);
                Ok(())
            };
            values.pairs(pairs, "=", key).map(drop)
        })
    }

    fn is_enum(&self, class: &Type) -> ReadResult<bool> {
        if class.metaclass == self.view.interpreter.types.class {
            return Ok(false);
        }
        let metaclass = self.view.type_at(class.metaclass)?;
        Ok(matches!(&*metaclass.name, "EnumType" | "EnumMeta"))
    }

    /// `<Colour.RED: 1>`; false if it is not made like one.
    fn member(&mut self, object: u64, class: &Type) -> ReadResult<bool> {
        let name = self.view.attribute(object, "_name_")?;
        let value = self.view.attribute(object, "_value_")?;
        let (Some(name), Some(value)) = (name, value) else {
            return Ok(false);
        };
        let name = self.name(name);
        let start = self.text.len();
        self.add(format_args!("<{}.", class.name));
        self.text.push_str(name.as_deref().unwrap_or_default());
        self.text.push_str(": ");
        let value = self.value(value);
        if let Some(gap) = name.err().max(value.err()) {
            self.text.truncate(start);
            return Err(gap);
        }
        self.text.push('>');
        Ok(true)
    }

    fn name(&self, text: u64) -> ReadResult<String> {
        self.view.text(text, self.limits.text)
    }
}

/// Around what is in it.
fn brackets(class: &Type) -> (char, char) {
    if class.has(Type::LIST) {
        ('[', ']')
    } else if class.has(Type::TUPLE) {
        ('(', ')')
    } else {
        ('{', '}')
    }
}
