//! The parameters whose gradients are hooked: one of each module for its time, or all for their statistics.
//!
//! Which parameters tell when their gradients are ready: of each module one by which it is timed, or all where
//! gradients are looked at.
//!
//! Which parameters get gradients changes: layers are frozen and thawed, and models are made anew where others were. So it is
//! looked again when a model is next called: behind each backward pass at modules where some got none, and at all behind one in
//! which other modules told than in the one before.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::Arc;

use pyo3::prelude::*;

use crate::breakpoints::Address;
use crate::python::weak::{is_target, target_is_gone, weak_of};
use crate::recorders::torch::backward::Hook;
use crate::recorders::torch::modules::{Modules, Owner};
use crate::recording::Called;

/// Fewer are not worth to look who of them is gone.
const MIN_SWEEP_HOOKS: usize = 64;

/// What a hook tells of.
#[derive(Debug, Clone)]
pub(crate) struct HookInfo {
    pub(crate) called: Called,
    /// Whether its module is timed by it.
    pub(crate) tells_time: bool,
    pub(crate) name: Box<str>,
    pub(crate) module: Arc<Owner>,
}

/// A parameter that has a hook.
#[derive(Debug)]
struct Hooked {
    about: HookInfo,
    weak: Py<PyAny>,
    hook: Hook,
}

/// All of them, by number.
#[derive(Debug, Default)]
pub(crate) struct Hooks {
    all: Vec<Option<Hooked>>,
    free: Vec<usize>,
    /// Numbers by the addresses of parameters, which others may have later.
    by_address: HashMap<usize, usize, BuildHasherDefault<Address>>,
    /// Hooks at which it is looked who is gone.
    enough: usize,
}

/// The parameters of a module that get gradients.
pub(crate) struct GradientParameters<'py> {
    /// The module, by address.
    pub(crate) address: usize,
    /// With their places among all of the module's.
    pub(crate) parameters: Vec<(usize, Bound<'py, PyAny>)>,
    /// Whether others would be among them that get none.
    pub(crate) lacks_some: bool,
}

/// A parameter that is to get a hook with this number.
pub(crate) struct Due<'py> {
    pub(crate) number: usize,
    pub(crate) tensor: Bound<'py, PyAny>,
    about: HookInfo,
}

impl Hooks {
    /// What the hook of a number tells of, if it is this parameter's.
    #[inline]
    pub(crate) fn about(&self, number: usize, parameter: &Bound<'_, PyAny>) -> Option<&HookInfo> {
        let hooked = self.all.get(number)?.as_ref()?;
        is_target(&hooked.weak, parameter).then_some(&hooked.about)
    }

    /// Those that have no hook yet, each with a number. Modules that are timed by another parameter than before are from now
    /// on.
    pub(crate) fn due<'py>(
        &mut self,
        modules: &mut Modules,
        wanting: Vec<GradientParameters<'py>>,
    ) -> Vec<Due<'py>> {
        let mut due = Vec::new();
        for GradientParameters {
            address,
            parameters,
            lacks_some,
        } in wanting
        {
            let Some(module) = modules.at_mut(address) else {
                continue;
            };
            module.lacks_some = lacks_some;
            let mut is_first = true;
            for (place, tensor) in parameters {
                let known = self.number_of(&tensor);
                let tells_time = std::mem::take(&mut is_first);
                let number = known.unwrap_or_else(|| self.next());
                if tells_time {
                    let before = module.timed_by.replace(number);
                    self.set_time(before.filter(|before| *before != number), false);
                    self.set_time(known, true);
                }
                if known.is_none() {
                    let about = HookInfo {
                        called: module.called,
                        tells_time,
                        name: module.parameters[place].name.clone(),
                        module: Arc::clone(&module.owner),
                    };
                    due.push(Due {
                        number,
                        tensor,
                        about,
                    });
                }
            }
        }
        due
    }

    /// A hook is there, or could not be put there.
    pub(crate) fn add(&mut self, due: Due<'_>, hook: Option<Hook>) {
        let Due {
            number,
            tensor,
            about,
        } = due;
        let Some((hook, weak)) = hook.zip(weak_of(&tensor)) else {
            return self.free.push(number);
        };
        self.by_address.insert(tensor.as_ptr() as usize, number);
        self.all[number] = Some(Hooked { about, weak, hook });
    }

    /// Forgets parameters that are gone, where there are many: given back, to be dropped outside.
    pub(crate) fn gone(&mut self) -> Vec<Hook> {
        if self.all.len() - self.free.len() < self.enough.max(MIN_SWEEP_HOOKS) {
            return Vec::new();
        }
        let mut gone = Vec::new();
        for (number, slot) in self.all.iter_mut().enumerate() {
            // One that is empty may be meant for who is just getting its hook.
            if let Some(dead) = slot.take_if(|hooked| target_is_gone(&hooked.weak)) {
                self.free.push(number);
                gone.push(dead.hook);
            }
        }
        let all = &self.all;
        self.by_address.retain(|_, number| all[*number].is_some());
        self.enough = 2 * self.by_address.len();
        gone
    }

    pub(crate) fn into_all(self) -> impl Iterator<Item = Hook> {
        self.all.into_iter().flatten().map(|hooked| hooked.hook)
    }

    fn number_of(&self, tensor: &Bound<'_, PyAny>) -> Option<usize> {
        let number = *self.by_address.get(&(tensor.as_ptr() as usize))?;
        self.about(number, tensor).map(|_| number)
    }

    fn next(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            self.all.push(None);
            self.all.len() - 1
        })
    }

    fn set_time(&mut self, number: Option<usize>, tells_time: bool) {
        let hooked = number.and_then(|number| self.all.get_mut(number)?.as_mut());
        if let Some(hooked) = hooked {
            hooked.about.tells_time = tells_time;
        }
    }
}
