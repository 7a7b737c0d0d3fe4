//! Values in words: as `repr` writes them where nothing must run for it, cut to limits.

use std::rc::Rc;

use super::{LocalLimits, UNREADABLE, Written, quoted};
use crate::objects::{Gap, Integer, Items, Look, Pairs, Type, View, float_text};

/// Of one variable, in bytes: then containers are cut short.
const MAX_VALUE: usize = 4 << 10;
/// Of an object of a data class.
const MAX_FIELDS: usize = 20;

/// Writes one value.
pub(super) struct Values<'a, 'v> {
    view: &'a View<'v>,
    limits: &'a LocalLimits,
    /// Containers that the one being written is in.
    around: Vec<u64>,
    written: usize,
    whole: bool,
}

impl<'a, 'v> Values<'a, 'v> {
    pub(super) fn new(view: &'a View<'v>, limits: &'a LocalLimits) -> Self {
        Self {
            view,
            limits,
            around: Vec::new(),
            written: 0,
            whole: true,
        }
    }

    pub(super) fn write(&mut self, object: u64) -> Look<Written> {
        let class = self.view.type_of(object)?;
        let text = self.value(object)?;
        Ok(Written {
            text: text.into(),
            kind: Some(class.name.clone()),
            whole: self.whole,
        })
    }

    fn value(&mut self, object: u64) -> Look<String> {
        let class = self.view.type_of(object)?;
        if self.around.contains(&object) {
            return Ok(enclosed(&class, "...".to_owned()));
        }
        self.around.push(object);
        let text = self.known_type(object, &class);
        self.around.pop();
        let text = text?;
        self.written += text.len();
        Ok(text)
    }

    /// A value in another one.
    fn part(&mut self, object: u64) -> Look<String> {
        match self.value(object) {
            Err(Gap::Wrong) => {
                self.whole = false;
                Ok(UNREADABLE.to_owned())
            }
            other => other,
        }
    }

    fn known_type(&mut self, object: u64, class: &Rc<Type>) -> Look<String> {
        let types = &self.view.interpreter.types;
        match class.address {
            _ if object == types.none => Ok("None".to_owned()),
            _ if object == types.ellipsis => Ok("Ellipsis".to_owned()),
            _ if object == types.not_implemented => Ok("NotImplemented".to_owned()),
            address if address == types.boolean => {
                let is_true = self.view.integer(object)? == Integer::Written("1".to_owned());
                Ok(if is_true { "True" } else { "False" }.to_owned())
            }
            address if address == types.float => Ok(float_text(self.view.float(object)?)),
            address if address == types.complex => self.complex(object),
            address if address == types.range => self.range(object),
            address if address == types.set || address == types.frozen_set => {
                let members = self.view.members(object, self.wanted())?;
                self.set(class, members)
            }
            address if address == types.function => {
                let name = self
                    .view
                    .interpreter
                    .layout
                    .builtins
                    .function_qualified_name();
                let name = self.view.word(object, name)?;
                Ok(format!("<function {}>", self.name(name)?))
            }
            address if address == types.method => {
                let builtins = &self.view.interpreter.layout.builtins;
                let function = self.view.word(object, builtins.method_function())?;
                Ok(format!("<bound method of {}>", self.value(function)?))
            }
            address if address == types.c_function => {
                let builtins = &self.view.interpreter.layout.builtins;
                let description = self.view.word(object, builtins.method_function())?;
                let name = self.view.c_string(self.view.word(description, 0)?)?;
                Ok(format!("<built-in function {name}>"))
            }
            address if address == types.module => {
                let name = self.view.interpreter.layout.builtins.module_name();
                let name = self.view.word(object, name)?;
                Ok(format!("<module '{}'>", self.name(name)?))
            }
            _ => self.derived(object, class),
        }
    }

    /// Types that others derive from.
    fn derived(&mut self, object: u64, class: &Rc<Type>) -> Look<String> {
        let exact = !class.is_heap() && matches!(&*class.name, "dict" | "tuple");
        if self.is_enum(class)?
            && let Some(text) = self.member(object, class)?
        {
            return Ok(text);
        }
        if class.has(Type::INT) {
            return self.integer(object);
        }
        if class.has(Type::TEXT) {
            let characters = self.view.characters(object, self.limits.text)?;
            return Ok(quoted::text(&characters));
        }
        if class.has(Type::BYTES) {
            let (first, count) = self.view.byte_string(object, self.limits.text)?;
            return Ok(quoted::bytes(&first, count));
        }
        if class.has(Type::LIST | Type::TUPLE) {
            let items = self.view.items(object, self.wanted())?;
            let text = self.sequence(class, items)?;
            let is_bare = exact || class.has(Type::LIST);
            return Ok(if is_bare {
                text
            } else {
                format!("{}{text}", class.name)
            });
        }
        if class.has(Type::DICT) {
            let pairs = self.view.pairs(object, self.wanted())?;
            let text = self.dict(pairs)?;
            return Ok(if exact {
                text
            } else {
                format!("{}({text})", class.name)
            });
        }
        if class.has(Type::EXCEPTION) {
            let arguments = self.view.interpreter.layout.builtins.exception_arguments();
            let arguments = self.view.word(object, arguments)?;
            let items = self.view.items(arguments, self.wanted())?;
            let (items, more) = self.items(items.first, items.count)?;
            return Ok(format!("{}({})", class.name, listed(items, more)));
        }
        if class.has(Type::TYPE) {
            return Ok(format!("<class '{}'>", self.view.type_at(object)?.name));
        }
        if class.is_heap() && self.may_go_deeper() && self.view.is_data_class(class)? {
            return self.data_class(object, class);
        }
        Ok(format!("<{} object at {object:#x}>", class.name))
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

    fn integer(&self, object: u64) -> Look<String> {
        Ok(match self.view.integer(object)? {
            Integer::Bits(bits) => format!("<int of about {bits} bits>"),
            Integer::Written(text) if text.len() > self.limits.text => {
                let (first, rest) = text.split_at(self.limits.text);
                format!("{first}… ({} more)", rest.len())
            }
            Integer::Written(text) => text,
        })
    }

    fn complex(&self, object: u64) -> Look<String> {
        let at = self.view.interpreter.layout.builtins.header;
        let part = |offset| self.view.word(object, at + offset).map(f64::from_bits);
        let text = |value: f64| {
            let text = float_text(value);
            text.strip_suffix(".0").map_or(text.clone(), str::to_owned)
        };
        let (real, imaginary) = (part(0)?, part(8)?);
        if real == 0.0 && real.is_sign_positive() {
            return Ok(format!("{}j", text(imaginary)));
        }
        let sign = if imaginary.is_sign_negative() && !imaginary.is_nan() {
            ""
        } else {
            "+"
        };
        Ok(format!("({}{sign}{}j)", text(real), text(imaginary)))
    }

    fn range(&mut self, object: u64) -> Look<String> {
        let at = self.view.interpreter.layout.builtins.header;
        let start = object.checked_add(at as u64).ok_or(Gap::Wrong)?;
        let parts = self.view.words(start, 3)?;
        let (mut parts, _) = self.items(parts, 3)?;
        if parts.last().is_some_and(|step| step == "1") {
            parts.pop();
        }
        Ok(format!("range({})", parts.join(", ")))
    }

    /// Texts of items and how many are not shown, of `count` in all.
    fn items(&mut self, items: Vec<u64>, count: usize) -> Look<(Vec<String>, usize)> {
        let (mut texts, mut gap) = (Vec::with_capacity(items.len()), None);
        for item in items {
            if self.written > MAX_VALUE {
                break;
            }
            match self.part(item) {
                Ok(text) => texts.push(text),
                Err(other) => gap = gap.max(Some(other)),
            }
        }
        let more = count.saturating_sub(texts.len());
        gap.map_or(Ok((texts, more)), Err)
    }

    fn sequence(&mut self, class: &Type, items: Items) -> Look<String> {
        let (texts, more) = self.items(items.first, items.count)?;
        let is_single = items.count == 1 && class.has(Type::TUPLE) && more == 0;
        let text = listed(texts, more);
        Ok(enclosed(class, if is_single { text + "," } else { text }))
    }

    fn set(&mut self, class: &Type, members: Items) -> Look<String> {
        let exact = class.address == self.view.interpreter.types.set;
        if members.count == 0 {
            return Ok(format!("{}()", class.name));
        }
        let (texts, more) = self.items(members.first, members.count)?;
        let text = format!("{{{}}}", listed(texts, more));
        Ok(if exact {
            text
        } else {
            format!("{}({text})", class.name)
        })
    }

    fn dict(&mut self, pairs: Pairs) -> Look<String> {
        let (texts, more) = self.pairs(pairs, ": ", Self::part)?;
        Ok(format!("{{{}}}", listed(texts, more)))
    }

    fn pairs(
        &mut self,
        pairs: Pairs,
        between: &str,
        key: impl Fn(&mut Self, u64) -> Look<String>,
    ) -> Look<(Vec<String>, usize)> {
        let (mut texts, mut gap) = (Vec::with_capacity(pairs.first.len()), None);
        for (name, value) in pairs.first {
            if self.written > MAX_VALUE {
                break;
            }
            match (key(self, name), self.part(value)) {
                (Ok(name), Ok(value)) => texts.push(format!("{name}{between}{value}")),
                (name, value) => gap = gap.max(name.err()).max(value.err()),
            }
        }
        let more = pairs.count.saturating_sub(texts.len());
        gap.map_or(Ok((texts, more)), Err)
    }

    fn data_class(&mut self, object: u64, class: &Type) -> Look<String> {
        let pairs = self
            .view
            .attributes(object, self.wanted().min(MAX_FIELDS))?;
        let (texts, more) = self.pairs(pairs, "=", |values, name| values.name(name))?;
        Ok(format!("{}({})", class.name, listed(texts, more)))
    }

    fn is_enum(&self, class: &Type) -> Look<bool> {
        if class.metaclass == self.view.interpreter.types.class {
            return Ok(false);
        }
        let metaclass = self.view.type_at(class.metaclass)?;
        Ok(matches!(&*metaclass.name, "EnumType" | "EnumMeta"))
    }

    /// `<Colour.RED: 1>`
    fn member(&mut self, object: u64, class: &Type) -> Look<Option<String>> {
        let name = self.view.attribute(object, "_name_")?;
        let value = self.view.attribute(object, "_value_")?;
        let (Some(name), Some(value)) = (name, value) else {
            return Ok(None);
        };
        let (name, value) = (self.name(name), self.value(value));
        Ok(Some(format!("<{}.{}: {}>", class.name, name?, value?)))
    }

    fn name(&self, text: u64) -> Look<String> {
        self.view.text(text, self.limits.text)
    }
}

fn enclosed(class: &Type, text: String) -> String {
    if class.has(Type::LIST) {
        format!("[{text}]")
    } else if class.has(Type::TUPLE) {
        format!("({text})")
    } else {
        format!("{{{text}}}")
    }
}

fn listed(mut texts: Vec<String>, more: usize) -> String {
    if more > 0 {
        texts.push(format!("… {more} more"));
    }
    texts.join(", ")
}
