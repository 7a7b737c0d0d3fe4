//! Types: their names and the layout of their instances.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use crate::memory::u64_at;
use crate::python::objects::{Gap, ReadResult, View};

const HEAP: u64 = 1 << 9;
const LARGEST: u64 = 1 << 20;
const MAX_NAME: usize = 256;
/// A metaclass of a metaclass is rare.
const MAX_METACLASSES: usize = 4;
const PAGE: u64 = 4096;

#[derive(Debug)]
pub(crate) struct Type {
    pub(crate) address: u64,
    /// The type of the type.
    pub(crate) metaclass: u64,
    /// The qualified name, without its module.
    pub(crate) name: Arc<str>,
    pub(crate) flags: u64,
    pub(crate) basic_size: u64,
    /// Address of the type that it inherits from first; 0 for `object`.
    pub(crate) base: u64,
    pub(crate) item_size: u64,
    /// Less than nothing: counted from the end.
    pub(crate) dict_offset: i64,
    is_data_class: Cell<Option<bool>>,
}

impl Type {
    pub(crate) const INLINE_VALUES: u64 = 1 << 2;
    pub(crate) const MANAGED_DICT: u64 = 1 << 4;
    pub(crate) const INT: u64 = 1 << 24;
    pub(crate) const LIST: u64 = 1 << 25;
    pub(crate) const TUPLE: u64 = 1 << 26;
    pub(crate) const BYTES: u64 = 1 << 27;
    pub(crate) const TEXT: u64 = 1 << 28;
    pub(crate) const DICT: u64 = 1 << 29;
    pub(crate) const EXCEPTION: u64 = 1 << 30;
    pub(crate) const TYPE: u64 = 1 << 31;

    pub(crate) fn has(&self, flag: u64) -> bool {
        self.flags & flag != 0
    }

    /// Made by a `class` statement, or by C as if it were.
    pub(crate) fn is_heap(&self) -> bool {
        self.has(HEAP)
    }
}

impl View<'_> {
    /// The type of an object.
    pub(crate) fn type_of(&self, object: u64) -> ReadResult<Rc<Type>> {
        self.type_at(self.class(object)?)
    }

    /// The object, if its type has this flag.
    pub(super) fn is(&self, object: u64, flag: u64) -> ReadResult<Rc<Type>> {
        let class = self.type_of(object)?;
        if class.has(flag) {
            Ok(class)
        } else {
            Err(Gap::Wrong)
        }
    }

    pub(crate) fn type_at(&self, address: u64) -> ReadResult<Rc<Type>> {
        if let Some(known) = self.types.borrow().get(&address) {
            return known.clone().ok_or(Gap::Wrong);
        }
        let read = self.read_type(address).map(Rc::new);
        if !matches!(read, Err(Gap::Later)) {
            self.types.borrow_mut().insert(address, read.clone().ok());
        }
        read
    }

    /// Whether `@dataclass` was said of a class.
    pub(crate) fn is_data_class(&self, class: &Type) -> ReadResult<bool> {
        if let Some(known) = class.is_data_class.get() {
            return Ok(known);
        }
        let at = self.interpreter.layout.builtins.class.namespace();
        let dict = self.word(class.address, at)?;
        let found = match self.value_of(dict, "__dataclass_fields__") {
            Err(Gap::Later) => return Err(Gap::Later),
            found => found.ok().flatten().is_some(),
        };
        class.is_data_class.set(Some(found));
        Ok(found)
    }

    fn read_type(&self, address: u64) -> ReadResult<Type> {
        let class = &self.interpreter.layout.builtins.class;
        let metaclass = self.class(address)?;
        self.check_metaclass(metaclass)?;
        let bytes = self.bytes(address, class.size)?;
        let field = |offset: usize| u64_at(&bytes, offset).ok_or(Gap::Wrong);
        let (flags, basic_size) = (field(class.flags)?, field(class.basic_size())?);
        if basic_size > LARGEST {
            return Err(Gap::Wrong);
        }
        let name = if flags & HEAP == 0 {
            self.c_string(field(class.name)?)?
        } else {
            self.text(self.word(address, class.qualified_name())?, MAX_NAME)?
        };
        let name = name
            .rsplit_once('.')
            .filter(|_| flags & HEAP == 0)
            .map_or(&*name, |(_, last)| last);
        if name.is_empty() || name.chars().any(char::is_control) {
            return Err(Gap::Wrong);
        }
        Ok(Type {
            address,
            metaclass,
            is_data_class: Cell::new(None),
            name: name.into(),
            flags,
            basic_size,
            base: field(class.base())?,
            item_size: field(class.item_size())?,
            dict_offset: field(class.dict_offset())?.cast_signed(),
        })
    }

    /// The type of a type is `type` or derived from it.
    fn check_metaclass(&self, mut metaclass: u64) -> ReadResult<()> {
        let flags = self.interpreter.layout.builtins.class.flags;
        for _ in 0..MAX_METACLASSES {
            if metaclass == self.interpreter.types.class {
                return Ok(());
            }
            let next = self.class(metaclass)?;
            if self.word(metaclass, flags)? & Type::TYPE == 0 {
                break;
            }
            metaclass = next;
        }
        Err(Gap::Wrong)
    }

    /// Text of C. It may end just before memory that is not mapped.
    pub(crate) fn c_string(&self, address: u64) -> ReadResult<String> {
        let (mut text, mut at) = (Vec::new(), address);
        while text.len() < MAX_NAME {
            let piece = self.bytes(at, (PAGE - at % PAGE).min(64) as usize)?;
            if let Some(end) = piece.iter().position(|byte| *byte == 0) {
                text.extend(&piece[..end]);
                return String::from_utf8(text).map_err(|_not_text| Gap::Wrong);
            }
            at = at.checked_add(piece.len() as u64).ok_or(Gap::Wrong)?;
            text.extend(&*piece);
        }
        Err(Gap::Wrong)
    }
}
