//! Attributes of instances.
//!
//! How objects keep them differs in each version:
//!
//! * 3.10: `tp_dictoffset` says where the dictionary is
//! * 3.11: three words before the object there is the dictionary, four before it the bare values
//! * 3.12: three words before the object there is either; an odd number points one byte before the values
//! * 3.13 and later: three words before the object there is the dictionary, or nothing, then values follow the object
//!
//! In every version some types say where their dictionary is, as in 3.10.

use crate::python::objects::{Gap, Pairs, ReadResult, Type, View};

enum AttributeStorage {
    Dictionary(u64),
    Values(u64),
    Nowhere,
}

impl View<'_> {
    /// Names and values of the attributes of an instance: those in its dictionary.
    pub(crate) fn attributes(&self, object: u64, limit: usize) -> ReadResult<Pairs> {
        let class = self.type_of(object)?;
        match self.place(object, &class)? {
            AttributeStorage::Nowhere => Ok(Pairs::default()),
            AttributeStorage::Dictionary(dict) => self.pairs(dict, limit),
            AttributeStorage::Values(values) => {
                let cached = self.interpreter.layout.builtins.class.cached_keys();
                let mut first = self.split(self.word(class.address, cached)?, values)?;
                let count = first.len();
                first.truncate(limit);
                Ok(Pairs { first, count })
            }
        }
    }

    /// The value of an attribute in the dictionary of an instance.
    pub(crate) fn attribute(&self, object: u64, name: &str) -> ReadResult<Option<u64>> {
        const MAX_ATTRIBUTES: usize = 1024;
        let pairs = self.attributes(object, MAX_ATTRIBUTES)?;
        self.find(&pairs.first, name)
    }

    fn place(&self, object: u64, class: &Type) -> ReadResult<AttributeStorage> {
        let minor = self.interpreter.layout.version.1;
        let before = |words: u64| {
            let at = object.checked_sub(8 * words).ok_or(Gap::Wrong)?;
            self.word(at, 0)
        };
        let dictionary = |dict| {
            if dict == 0 {
                AttributeStorage::Nowhere
            } else {
                AttributeStorage::Dictionary(dict)
            }
        };
        if minor == 10 || !class.has(Type::MANAGED_DICT) {
            return match class.dict_offset {
                0 => Ok(AttributeStorage::Nowhere),
                _ => Ok(dictionary(
                    self.word(object, self.dict_offset(object, class)?)?,
                )),
            };
        }
        match minor {
            11 => match (before(3)?, before(4)?) {
                (0, 0) => Ok(AttributeStorage::Nowhere),
                (0, values) => Ok(AttributeStorage::Values(values)),
                (dict, _) => Ok(AttributeStorage::Dictionary(dict)),
            },
            12 => match before(3)? {
                values if values % 2 == 1 => Ok(AttributeStorage::Values(
                    values.checked_add(1).ok_or(Gap::Wrong)?,
                )),
                dict => Ok(dictionary(dict)),
            },
            _ => match before(3)? {
                0 if class.has(Type::INLINE_VALUES) => {
                    let values = object.checked_add(class.basic_size);
                    Ok(AttributeStorage::Values(values.ok_or(Gap::Wrong)?))
                }
                dict => Ok(dictionary(dict)),
            },
        }
    }

    /// Some types of variable size count from the end of an object.
    fn dict_offset(&self, object: u64, class: &Type) -> ReadResult<usize> {
        let mut end = 0;
        if class.dict_offset < 0 {
            let count = self.word(object, self.interpreter.layout.object.size)?;
            let count = count.cast_signed().unsigned_abs();
            let items = count.checked_mul(class.item_size);
            let size = items.and_then(|items| items.checked_add(class.basic_size));
            let size = size.and_then(|size| size.checked_next_multiple_of(8));
            end = size.ok_or(Gap::Wrong)?.cast_signed();
        }
        let offset = end.checked_add(class.dict_offset).ok_or(Gap::Wrong)?;
        usize::try_from(offset).map_err(|_negative| Gap::Wrong)
    }
}
