//! Modules, and what they are called in their models.
//!
//! A model is found when one of its modules is called for the first time: whoever called it is on the stack, and the
//! outermost module there that contains it is its model. Its tree is then walked once, without calling anything of it. No
//! object is looked for anywhere else, so a process with millions of them is no slower.
#![expect(
    unsafe_code,
    reason = "dictionaries are had by the C interface, without asking the program"
)]

use std::collections::{HashMap, HashSet};
use std::hash::BuildHasherDefault;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::inspect::variables;
use crate::python::address_hash::Address;
use crate::python::frame;
use crate::python::interned::interned;
use crate::python::text::text_of;
use crate::python::weak::{is_target, target, target_is_gone, weak_of};
use crate::recorders::torch::state::HookScan;
use crate::recording::{self, Called};
use crate::trace::{code_of_callable, of_class};

/// Modules of one model that get names.
const MAX_MODULES: usize = 100_000;
/// Frames on the way to a model.
const MAX_FRAMES: usize = 200;
/// Decorators around a `forward`.
const MAX_DECORATORS: usize = 16;

/// What rows of a module's tensors say of it.
#[derive(Debug)]
pub(crate) struct Owner {
    /// In its model.
    pub(crate) name: String,
    pub(crate) class: Arc<Class>,
    /// The number of the last look at a value of it for NaN and Inf; 0 when there was none.
    pub(crate) last_look: AtomicU64,
}

/// The class of modules.
#[derive(Debug)]
pub(crate) struct Class {
    pub(crate) name: String,
    /// File and line of its `forward`, where that is Python code.
    pub(crate) forward: Option<(String, u32)>,
}

/// One module.
#[derive(Debug)]
pub(crate) struct Module {
    weak: Py<PyAny>,
    pub(crate) called: Called,
    pub(crate) owner: Arc<Owner>,
    pub(crate) is_root: bool,
    /// Its own parameters, with their names in the model, which are not kept alive.
    pub(crate) parameters: Vec<Parameter>,
    /// The hook that tells how long its part of a backward pass took.
    pub(crate) timed_by: Option<usize>,
    /// Some of its parameters that would tell get no gradients, so that others do, or none.
    pub(crate) lacks_some: bool,
}

impl Module {
    /// Those of its parameters that are alive, with their places.
    pub(crate) fn tensors<'py>(&self, py: Python<'py>) -> Vec<(usize, Bound<'py, PyAny>)> {
        let parameters = self.parameters.iter().enumerate();
        parameters
            .filter_map(|(place, parameter)| Some((place, parameter.tensor(py)?)))
            .collect()
    }
}

#[derive(Debug)]
pub(crate) struct Parameter {
    pub(crate) name: Box<str>,
    weak: Py<PyAny>,
}

impl Parameter {
    pub(crate) fn tensor<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyAny>> {
        target(py, &self.weak)
    }
}

/// Those that are known, by address.
#[derive(Debug, Default)]
pub(crate) struct Modules {
    known: HashMap<usize, Module, BuildHasherDefault<Address>>,
    pub(crate) roots: Vec<String>,
    /// The step in which a walk did not find what it was for: modules that belong to nothing are made and thrown away by
    /// some programs, and each of them would cost a walk.
    in_vain: Option<i64>,
}

/// What a walk has found, before it is known.
pub(crate) struct FoundModule<'py> {
    module: Bound<'py, PyAny>,
    name: String,
    parameters: Vec<(String, Bound<'py, PyAny>)>,
}

impl Modules {
    #[inline]
    pub(crate) fn get(&self, module: &Bound<'_, PyAny>) -> Option<&Module> {
        let known = self.known.get(&(module.as_ptr() as usize))?;
        is_target(&known.weak, module).then_some(known)
    }

    pub(crate) fn at(&self, address: usize) -> Option<&Module> {
        self.known.get(&address)
    }

    pub(crate) fn at_mut(&mut self, address: usize) -> Option<&mut Module> {
        self.known.get_mut(&address)
    }

    /// Those that are to be looked at.
    pub(crate) fn addresses(&self, looks: HookScan) -> Vec<usize> {
        let all = self.known.iter();
        let looked_at =
            all.filter(|(_, module)| looks == HookScan::Everywhere || module.lacks_some);
        looked_at.map(|(address, _)| *address).collect()
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Module> {
        self.known.values()
    }

    pub(crate) fn count(&self) -> usize {
        self.known.len()
    }

    /// How many were looked at for NaN and Inf after this look.
    pub(crate) fn looked_at(&self, since: u64) -> usize {
        let is_later = |module: &&Module| module.owner.last_look.load(Ordering::Relaxed) > since;
        self.known.values().filter(is_later).count()
    }

    pub(crate) fn may_walk(&self, step: i64) -> bool {
        self.in_vain != Some(step)
    }

    pub(crate) fn walked_in_vain(&mut self, step: i64) {
        self.in_vain = Some(step);
    }

    /// Takes over what a walk has found. What is gone is forgotten: given back, to be dropped outside.
    pub(crate) fn learn(&mut self, learned: Vec<(usize, Module)>, root: String) -> Vec<Module> {
        let mut gone: Vec<Module> = Vec::new();
        if self.known.len() > 2 * learned.len() + 64 {
            let is_dead = |_: &usize, module: &mut Module| target_is_gone(&module.weak);
            gone.extend(self.known.extract_if(is_dead).map(|(_, module)| module));
        }
        for (address, module) in learned {
            gone.extend(self.known.insert(address, module));
        }
        if !self.roots.contains(&root) && self.roots.len() < 64 {
            self.roots.push(root);
        }
        gone
    }
}

/// Whether a value is a module of torch's, or derived from it.
pub(crate) fn is_module(value: &Bound<'_, PyAny>, class: &Bound<'_, PyAny>) -> bool {
    // SAFETY: both are live objects, and the second is a class.
    unsafe { ffi::PyType_IsSubtype(ffi::Py_TYPE(value.as_ptr()), class.as_ptr().cast()) != 0 }
}

/// A model, and how one of its modules led to it.
pub(crate) struct Model<'py> {
    pub(crate) root: Bound<'py, PyAny>,
    pub(crate) found: Vec<FoundModule<'py>>,
    /// The module was called inside of another model, and belongs to none: made for this call, perhaps.
    pub(crate) is_stray: bool,
}

/// The model that a module belongs to, and all modules of it: the outermost on the stack that contains it, else itself.
pub(crate) fn model_of<'py>(
    module: &Bound<'py, PyAny>,
    class: &Bound<'py, PyAny>,
    may_walk: bool,
) -> Model<'py> {
    let py = module.py();
    let mut callers: Vec<Bound<'py, PyAny>> = Vec::new();
    let mut next = frame::current(py);
    for _ in 0..MAX_FRAMES {
        let Some(current) = next.filter(|_| may_walk) else {
            break;
        };
        if let Some(caller) = variables::variable(&current, interned!(py, "self"))
            && is_module(&caller, class)
            && !callers.iter().any(|other| other.is(&caller))
            && !caller.is(module)
        {
            callers.push(caller);
        }
        next = frame::caller_of(&current);
    }
    let is_stray = !callers.is_empty() || !may_walk;
    for root in callers.into_iter().rev() {
        let found = walk(&root);
        if found.iter().any(|found| found.module.is(module)) {
            return Model {
                root,
                found,
                is_stray: false,
            };
        }
    }
    Model {
        root: module.clone(),
        found: walk(module),
        is_stray,
    }
}

/// All modules of a model with their names, as `named_modules` gives them, without calling anything of the program.
fn walk<'py>(root: &Bound<'py, PyAny>) -> Vec<FoundModule<'py>> {
    let mut seen = HashSet::new();
    let mut found = Vec::new();
    let mut left = vec![(root.clone(), String::new())];
    while let Some((module, name)) = left.pop() {
        if found.len() >= MAX_MODULES || !seen.insert(module.as_ptr() as usize) {
            continue;
        }
        let Some(own) = dictionary_of(&module) else {
            continue;
        };
        let inside = |key| {
            if name.is_empty() {
                key
            } else {
                format!("{name}.{key}")
            }
        };
        let children = entries(&own, "_modules");
        let children = children
            .into_iter()
            .map(|(key, child)| (child, inside(key)));
        left.extend(children.rev());
        let parameters = entries(&own, "_parameters");
        let parameters = parameters.into_iter().map(|(key, it)| (inside(key), it));
        let parameters = parameters.collect();
        found.push(FoundModule {
            module,
            name,
            parameters,
        });
    }
    found
}

/// What one of a module's dictionaries holds.
fn entries<'py>(own: &Bound<'py, PyDict>, name: &str) -> Vec<(String, Bound<'py, PyAny>)> {
    let inner = own.get_item(name).ok().flatten();
    let inner = inner.and_then(|inner| inner.cast_into::<PyDict>().ok());
    let pairs = inner.iter().flat_map(PyDictMethods::iter);
    pairs
        .filter(|(_, value)| !value.is_none())
        .filter_map(|(key, value)| {
            Some((
                key.cast::<PyString>().ok()?.to_str().ok()?.to_owned(),
                value,
            ))
        })
        .collect()
}

/// An object's own dictionary.
fn dictionary_of<'py>(object: &Bound<'py, PyAny>) -> Option<Bound<'py, PyDict>> {
    // SAFETY: a live object, and the GIL is held. A new reference, or null with an exception.
    unsafe {
        let found = ffi::PyObject_GenericGetDict(object.as_ptr(), std::ptr::null_mut());
        if found.is_null() {
            ffi::PyErr_Clear();
        }
        let found: Option<Bound<'py, PyAny>> = Bound::from_owned_ptr_or_opt(object.py(), found);
        found?.cast_into::<PyDict>().ok()
    }
}

/// What was found, with everything that is needed to know it again.
pub(crate) fn named(model: Model<'_>) -> (Vec<(usize, Module)>, String) {
    let Model {
        root,
        found,
        is_stray,
    } = model;
    let py = root.py();
    let root_class = class_name(&root);
    let mut classes = HashMap::new();
    let mut all = Vec::with_capacity(found.len());
    for FoundModule {
        module,
        name,
        parameters,
    } in found
    {
        let class = class_of(&module, &mut classes);
        let is_root = name.is_empty();
        let name = if is_root { root_class.clone() } else { name };
        let is_root = is_root && !is_stray;
        let Some(weak) = weak_of(&module) else {
            continue;
        };
        let parameters = parameters.into_iter().filter_map(|(name, tensor)| {
            let name = name.into_boxed_str();
            Some(Parameter {
                name,
                weak: weak_of(&tensor)?,
            })
        });
        let known = Module {
            weak,
            called: recording::called(py, &name, &class.name, &root_class),
            parameters: parameters.collect(),
            owner: Arc::new(Owner {
                name,
                class,
                last_look: AtomicU64::new(0),
            }),
            is_root,
            timed_by: None,
            lacks_some: false,
        };
        all.push((module.as_ptr() as usize, known));
    }
    (all, root_class)
}

/// The class of a module, which others have as well, unless the module has a `forward` of its own.
fn class_of(module: &Bound<'_, PyAny>, known: &mut HashMap<usize, Arc<Class>>) -> Arc<Class> {
    let name = interned!(module.py(), "forward");
    let class = module.get_type();
    let described = |forward: Option<Bound<'_, PyAny>>| {
        Arc::new(Class {
            name: class_name(module),
            forward: forward.and_then(beginning_of),
        })
    };
    let own = dictionary_of(module).and_then(|own| own.get_item(name).ok()?);
    if own.is_some() {
        return described(own);
    }
    let known = known.entry(class.as_ptr() as usize);
    Arc::clone(known.or_insert_with(|| described(of_class(&class, name))))
}

/// Where the code of a function begins, below its decorators.
fn beginning_of(mut function: Bound<'_, PyAny>) -> Option<(String, u32)> {
    let py = function.py();
    for _ in 0..MAX_DECORATORS {
        let own = dictionary_of(&function);
        let Some(inner) = own.and_then(|own| own.get_item(interned!(py, "__wrapped__")).ok()?)
        else {
            break;
        };
        function = inner;
    }
    let code = code_of_callable(&function)?;
    Some((frame::file_of(&code), frame::first_line_of(&code)))
}

/// The name of an object's class.
pub(crate) fn class_name(object: &Bound<'_, PyAny>) -> String {
    let name = object
        .get_type()
        .getattr(interned!(object.py(), "__name__"));
    name.map(|name| text_of(&name)).unwrap_or_default()
}
