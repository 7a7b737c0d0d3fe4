//! Paths to watched values (`config.lr`, `layers[0]`), followed without running code of the program.
//!
//! What is watched by name: `config.lr`, `model.fc1.weight`, `layers[0]`, `cfg['lr']`; and how it is followed, from
//! object to object, without running code of the program. Most steps lead through a dictionary: the names of a
//! module, the attributes of an object, a dictionary itself. Those can tell when they change; the others have to be
//! looked at.
#![expect(
    unsafe_code,
    reason = "asks classes what they have, without asking the program"
)]

use probing_proto::message::Failure;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyInt, PyList, PyModule, PyString, PyTuple, PyType};

use crate::python::symbols::symbols;
use crate::watchpoints::{format, tensors};

/// Where `nn.Module` has what its attributes lead to.
const OF_MODULES: [&str; 3] = ["_parameters", "_buffers", "_modules"];

/// Attributes of tensors that are operations.
const COMPUTED: [&str; 6] = ["T", "H", "mT", "mH", "real", "imag"];

/// A name and where it leads.
pub(crate) struct Path {
    /// The dictionary that the first name is in.
    pub(crate) names: Py<PyDict>,
    pub(crate) name: Py<PyAny>,
    pub(crate) parts: Vec<Part>,
}

pub(crate) enum Part {
    Attribute(Py<PyString>),
    Key(Py<PyAny>),
    Index(isize),
}

/// Where a part of a path is.
enum PartLocation<'py> {
    In(Bound<'py, PyDict>, Bound<'py, PyAny>),
    Elsewhere(Option<Bound<'py, PyAny>>),
    /// Only code of the program could tell.
    Hidden(String),
}

/// Where a path led.
pub(crate) struct Followed<'py> {
    /// The dictionaries that it led through, with the keys; each with the part that comes next.
    pub(crate) links: Vec<(Bound<'py, PyDict>, Bound<'py, PyAny>, usize)>,
    /// What the last of them leads to.
    pub(crate) base: Option<Bound<'py, PyAny>>,
    /// The first part that no dictionary holds; what follows is looked at each time.
    pub(crate) tail: usize,
    pub(crate) value: Option<Bound<'py, PyAny>>,
    pub(crate) hidden: Option<String>,
}

impl Path {
    /// Reads a path, and finds where it begins: a name of `__main__`, or a module.
    pub(crate) fn new(py: Python<'_>, text: &str) -> Result<Self, Failure> {
        let parts = read(py, text).ok_or_else(|| {
            Failure::new(format!("not a name with attributes and items: {text}"))
                .with_hint("as in config.lr, model.fc1.weight, cfg['lr'], layers[0]; FUNCTION:NAME is a local variable")
        })?;
        Self::begin(py, parts).ok_or_else(|| {
            Failure::new(format!("a module is not a variable: {text}"))
                .with_hint("name one of its variables: module.NAME")
        })
    }

    /// A variable of the environment, as `os.environ` has it.
    pub(crate) fn of_environment(py: Python<'_>, name: &str) -> Result<Self, Failure> {
        let missing = || Failure::new("os.environ was replaced: nothing to watch");
        let os = module(py, "os").ok_or_else(missing)?;
        let environ = names_of(&os).and_then(|names| get(&names, "environ"));
        let data = environ.as_ref().and_then(environment).ok_or_else(missing)?;
        Ok(Self {
            names: data.unbind(),
            name: PyBytes::new(py, name.as_bytes()).into_any().unbind(),
            parts: Vec::new(),
        })
    }

    fn begin(py: Python<'_>, mut parts: Vec<Part>) -> Option<Self> {
        let Part::Attribute(name) = parts.remove(0) else {
            return None;
        };
        let main = module(py, "__main__").and_then(|main| names_of(&main))?;
        let is_of_main = get(&main, name.bind(py).to_str().ok()?)
            .is_some_and(|found| parts.is_empty() || !found.is_instance_of::<PyModule>());
        if !is_of_main && let Some(begun) = Self::of_module(py, &name, &parts) {
            let (names, name, rest) = begun?;
            return Some(Self {
                names: names.unbind(),
                name: name.into_any(),
                parts: parts.split_off(rest),
            });
        }
        Some(Self {
            names: main.unbind(),
            name: name.into_any(),
            parts,
        })
    }

    /// The longest beginning that is a loaded module, the name that follows, and the rest. `Some(None)`: nothing follows.
    #[expect(clippy::type_complexity, reason = "three parts of one answer")]
    fn of_module<'py>(
        py: Python<'py>,
        name: &Py<PyString>,
        parts: &[Part],
    ) -> Option<Option<(Bound<'py, PyDict>, Py<PyString>, usize)>> {
        let mut dotted = name.bind(py).to_str().ok()?.to_owned();
        let mut found = module(py, &dotted).map(|module| (module, 0));
        for (index, part) in parts.iter().enumerate() {
            let Part::Attribute(next) = part else { break };
            dotted = format!("{dotted}.{}", next.bind(py).to_str().ok()?);
            if let Some(module) = module(py, &dotted) {
                found = Some((module, index + 1));
            }
        }
        let (module, used) = found?;
        let names = names_of(&module)?;
        match parts.get(used) {
            Some(Part::Attribute(next)) => Some(Some((names, next.clone_ref(py), used + 1))),
            _ => Some(None),
        }
    }

    /// From its beginning.
    pub(crate) fn follow<'py>(&self, py: Python<'py>) -> Followed<'py> {
        let (names, name) = (self.names.bind(py), self.name.bind(py));
        let found = names.get_item(name).ok().flatten();
        let mut followed = self.follow_from(0, found);
        let first = (names.clone(), name.clone(), 0);
        followed.links.insert(0, first);
        followed
    }

    /// From a value on, to which the parts before `at` have led.
    pub(crate) fn follow_from<'py>(
        &self,
        at: usize,
        value: Option<Bound<'py, PyAny>>,
    ) -> Followed<'py> {
        let mut followed = Followed {
            links: Vec::new(),
            base: value.clone(),
            tail: self.parts.len(),
            value,
            hidden: None,
        };
        for (index, part) in self.parts.iter().enumerate().skip(at) {
            let Some(holder) = followed.value.take() else {
                return followed;
            };
            let is_in_tail = followed.tail < self.parts.len();
            match held(&holder, part) {
                PartLocation::In(dict, key) => {
                    followed.value = dict.get_item(&key).ok().flatten();
                    if !is_in_tail {
                        // What a class has is there until the object gets its own.
                        let of_class = || of_class(&holder, part);
                        followed.value = followed.value.or_else(of_class);
                        followed.base.clone_from(&followed.value);
                        followed.links.push((dict, key, index + 1));
                    }
                }
                PartLocation::Elsewhere(value) => {
                    if !is_in_tail {
                        followed.tail = index;
                    }
                    followed.value = value;
                }
                PartLocation::Hidden(why) => {
                    followed.hidden = Some(why);
                    return followed;
                }
            }
        }
        followed
    }
}

/// What a part of a path is in.
fn held<'py>(holder: &Bound<'py, PyAny>, part: &Part) -> PartLocation<'py> {
    let py = holder.py();
    match part {
        Part::Attribute(name) => attribute(holder, name.bind(py)),
        Part::Key(key) => item(holder, key.bind(py)),
        Part::Index(index) => {
            if let Ok(list) = holder.cast::<PyList>() {
                return PartLocation::Elsewhere(
                    at(list.len(), *index).and_then(|at| list.get_item(at).ok()),
                );
            }
            if let Ok(tuple) = holder.cast::<PyTuple>() {
                return PartLocation::Elsewhere(
                    at(tuple.len(), *index).and_then(|at| tuple.get_item(at).ok()),
                );
            }
            let modules = attributes(holder).and_then(|own| get(&own, "_modules"));
            if let Some(modules) = modules.and_then(|it| it.cast_into::<PyDict>().ok())
                && let Some(at) = at(modules.len(), *index)
            {
                let key = PyString::intern(py, &at.to_string());
                return PartLocation::In(modules, key.into_any());
            }
            match index.into_pyobject(py) {
                Ok(key) => item(holder, key.as_any()),
                Err(_) => PartLocation::Elsewhere(None),
            }
        }
    }
}

fn at(length: usize, index: isize) -> Option<usize> {
    let index = if index < 0 {
        index.checked_add(length as isize)?
    } else {
        index
    };
    usize::try_from(index).ok().filter(|index| *index < length)
}

fn item<'py>(holder: &Bound<'py, PyAny>, key: &Bound<'py, PyAny>) -> PartLocation<'py> {
    if let Ok(dict) = holder.cast::<PyDict>() {
        return PartLocation::In(dict.clone(), key.clone());
    }
    if let Some(data) = environment(holder)
        && let Ok(key) = key.extract::<String>()
    {
        let key = PyBytes::new(holder.py(), key.as_bytes());
        return PartLocation::In(data, key.into_any());
    }
    PartLocation::Hidden(format!(
        "only its own code knows the items of a {}",
        format::name_of(holder.get_type().as_any())
    ))
}

/// The dictionary inside `os.environ`.
fn environment<'py>(environ: &Bound<'py, PyAny>) -> Option<Bound<'py, PyDict>> {
    let is_it = format::name_of(environ.get_type().as_any()) == "_Environ";
    let own = attributes(environ).filter(|_| is_it)?;
    get(&own, "_data")?.cast_into().ok()
}

fn attribute<'py>(holder: &Bound<'py, PyAny>, name: &Bound<'py, PyString>) -> PartLocation<'py> {
    if let Some(names) = names_of(holder) {
        return PartLocation::In(names, name.clone().into_any());
    }
    let class = of_type(&holder.get_type(), name);
    match class.as_ref().map(kind_of) {
        // A place in the object itself, or what C code tells: no code of the program.
        Some(Described::Place) => return placed(holder, name),
        Some(Described::Code) => {
            return PartLocation::Hidden(format!(
                "{} is a property: only its code knows its value",
                name.to_str().unwrap_or_default()
            ));
        }
        Some(Described::Value) | None => {}
    }
    let Some(own) = attributes(holder) else {
        return if holder.is_instance_of::<PyType>() {
            // A class: what it and its bases have.
            let found = holder
                .cast::<PyType>()
                .ok()
                .and_then(|it| of_type(it, name));
            PartLocation::Elsewhere(found)
        } else {
            PartLocation::Elsewhere(class)
        };
    };
    if !own.contains(name).unwrap_or(false) {
        for place in OF_MODULES {
            let parts = get(&own, place).and_then(|it| it.cast_into::<PyDict>().ok());
            if let Some(parts) = parts
                && parts.contains(name).unwrap_or(false)
            {
                return PartLocation::In(parts, name.clone().into_any());
            }
        }
    }
    PartLocation::In(own, name.clone().into_any())
}

/// What C code tells of an object. Torch is asked only for what it has, unheard by modes of the program: for what it
/// computes, it lets other threads in.
fn placed<'py>(holder: &Bound<'py, PyAny>, name: &Bound<'py, PyString>) -> PartLocation<'py> {
    if !tensors::is_tensor(holder) {
        return PartLocation::Elsewhere(holder.getattr(name).ok());
    }
    let text = name.to_str().unwrap_or_default();
    if COMPUTED.contains(&text) {
        return PartLocation::Hidden(format!("{text} of a tensor is computed each time"));
    }
    let unheard = tensors::Unheard::begin(holder.py());
    PartLocation::Elsewhere(unheard.and_then(|_unheard| holder.getattr(name).ok()))
}

/// What a class has under the name of an attribute that an object does not have itself.
fn of_class<'py>(holder: &Bound<'py, PyAny>, part: &Part) -> Option<Bound<'py, PyAny>> {
    let Part::Attribute(name) = part else {
        return None;
    };
    of_type(&holder.get_type(), name.bind(holder.py()))
}

/// What something that a class has means for its objects.
enum Described {
    Place,
    Code,
    Value,
}

fn kind_of(of_class: &Bound<'_, PyAny>) -> Described {
    let kind = of_class.get_type();
    let own = [
        &raw mut ffi::PyMemberDescr_Type,
        &raw mut ffi::PyGetSetDescr_Type,
    ];
    if own.contains(&kind.as_type_ptr()) {
        return Described::Place;
    }
    // SAFETY: a class that is alive, and a slot that every class may have.
    let sets = unsafe { ffi::PyType_GetSlot(kind.as_type_ptr(), ffi::Py_tp_descr_set) };
    if sets.is_null() {
        Described::Value
    } else {
        Described::Code
    }
}

/// What a class or one of its bases has, without asking it.
fn of_type<'py>(
    class: &Bound<'py, PyType>,
    name: &Bound<'py, PyString>,
) -> Option<Bound<'py, PyAny>> {
    let look_up = symbols().type_lookup?;
    // SAFETY: a class and a string that are alive, and the GIL is held. What comes back is borrowed, or null.
    unsafe {
        let found = look_up(class.as_type_ptr(), name.as_ptr());
        Bound::from_borrowed_ptr_or_opt(class.py(), found)
    }
}

/// The attributes of an object that are its own.
pub(crate) fn attributes<'py>(object: &Bound<'py, PyAny>) -> Option<Bound<'py, PyDict>> {
    if object.is_instance_of::<PyType>() {
        return None;
    }
    // SAFETY: a live object, and the GIL is held. A new reference, or null with an exception.
    let found = unsafe {
        let found = ffi::PyObject_GenericGetDict(object.as_ptr(), std::ptr::null_mut());
        if found.is_null() {
            ffi::PyErr_Clear();
        }
        Bound::from_owned_ptr_or_opt(object.py(), found)
    };
    found?.cast_into().ok()
}

/// One of them. From 3.12 on Python makes a dictionary for who asks for all, and keeps it with the object.
pub(crate) fn own_attribute<'py>(
    object: &Bound<'py, PyAny>,
    name: &Bound<'py, PyString>,
) -> Option<Bound<'py, PyAny>> {
    // What its class has of that name would come first, and may be code.
    let is_hidden = of_type(&object.get_type(), name).is_some();
    if is_hidden || symbols().type_lookup.is_none() {
        return attributes(object)?.get_item(name).ok()?;
    }
    // SAFETY: a live object and a string, and the GIL is held. A new reference, or null with an exception.
    unsafe {
        let found = ffi::PyObject_GenericGetAttr(object.as_ptr(), name.as_ptr());
        if found.is_null() {
            ffi::PyErr_Clear();
        }
        Bound::from_owned_ptr_or_opt(object.py(), found)
    }
}

/// The names of a module.
fn names_of<'py>(module: &Bound<'py, PyAny>) -> Option<Bound<'py, PyDict>> {
    Some(module.cast::<PyModule>().ok()?.dict())
}

fn get<'py>(dict: &Bound<'py, PyDict>, name: &str) -> Option<Bound<'py, PyAny>> {
    dict.get_item(PyString::intern(dict.py(), name)).ok()?
}

/// A module that is loaded; nothing is imported.
pub(crate) fn module<'py>(py: Python<'py>, name: &str) -> Option<Bound<'py, PyAny>> {
    named(py, &PyString::intern(py, name))
}

/// The same, by a name that is at hand.
pub(crate) fn named<'py>(
    py: Python<'py>,
    name: &Bound<'py, PyString>,
) -> Option<Bound<'py, PyAny>> {
    // SAFETY: the GIL is held; a borrowed reference to a dictionary, or null.
    let modules: Bound<'_, PyAny> =
        unsafe { Bound::from_borrowed_ptr_or_opt(py, ffi::PyImport_GetModuleDict()) }?;
    modules.cast::<PyDict>().ok()?.get_item(name).ok()?
}

/// `name`, then `.name`, `['key']`, `[3]`, as often as wanted.
fn read(py: Python<'_>, text: &str) -> Option<Vec<Part>> {
    let mut rest = text.trim();
    let mut parts = Vec::new();
    loop {
        let length = rest
            .find(|char: char| char != '_' && !char.is_alphanumeric())
            .unwrap_or(rest.len());
        let (name, after) = rest.split_at(length);
        if name.is_empty() || name.starts_with(|char: char| char.is_ascii_digit()) {
            return None;
        }
        parts.push(Part::Attribute(PyString::intern(py, name).unbind()));
        rest = after;
        while let Some(inside) = rest.strip_prefix('[') {
            let (part, after) = key(py, inside.trim_start())?;
            parts.push(part);
            rest = after.trim_start().strip_prefix(']')?;
        }
        match rest.strip_prefix('.') {
            Some(after) => rest = after,
            None => return rest.is_empty().then_some(parts),
        }
    }
}

fn key<'a>(py: Python<'_>, text: &'a str) -> Option<(Part, &'a str)> {
    if let Some(quote) = text
        .chars()
        .next()
        .filter(|char| matches!(char, '\'' | '"'))
    {
        let inside = &text[1..];
        let end = inside.find(quote)?;
        let key = &inside[..end];
        let part = Part::Key(PyString::intern(py, key).into_any().unbind());
        return (!key.contains('\\')).then_some((part, &inside[end + 1..]));
    }
    let length = text
        .find(|char: char| char != '-' && !char.is_ascii_digit())
        .unwrap_or(text.len());
    let index = text[..length].parse().ok()?;
    Some((Part::Index(index), &text[length..]))
}

/// Whether two keys are the same, without code of the program.
pub(crate) fn is_key(key: &Bound<'_, PyAny>, other: &Bound<'_, PyAny>) -> bool {
    if key.is(other) {
        return true;
    }
    let is_own = |it: &Bound<'_, PyAny>| {
        it.is_exact_instance_of::<PyString>()
            || it.is_exact_instance_of::<PyInt>()
            || it.is_exact_instance_of::<PyBytes>()
    };
    key.get_type().is(other.get_type()) && is_own(key) && key.eq(other).unwrap_or(false)
}
