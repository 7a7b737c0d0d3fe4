//! Names of functions as their authors wrote them: C++ and Rust encode much more in them.

use std::fmt;

use cpp_demangle::{DemangleOptions, Symbol};

/// Templates of templates of templates.
const MAX_NAME: usize = 1000;
/// What compilers append to parts and copies of a function.
const PARTS: [&str; 8] = [
    ".cold",
    ".part",
    ".constprop",
    ".isra",
    ".lto_priv",
    ".llvm",
    ".localalias",
    ".warm",
];

/// The name without what compilers and linkers add to it.
pub(crate) fn readable(name: &str) -> String {
    let unversioned = name.split('@').next().unwrap_or_default();
    let name = without_parts(unversioned);
    demangled(name).unwrap_or_else(|| name.to_owned())
}

/// Takes so much text and no more: a short encoded name may stand for an endless one.
struct Short(String);

impl fmt::Write for Short {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() > MAX_NAME {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

fn without_parts(name: &str) -> &str {
    let ends = PARTS.iter().filter_map(|part| {
        let at = name.find(part).filter(|at| *at > 0)?;
        let rest = &name[at + part.len()..];
        (rest.is_empty() || rest.starts_with('.')).then_some(at)
    });
    &name[..ends.min().unwrap_or(name.len())]
}

fn demangled(name: &str) -> Option<String> {
    let mut short = Short(String::new());
    let written = if let Ok(rust) = rustc_demangle::try_demangle(name) {
        fmt::write(&mut short, format_args!("{rust:#}"))
    } else {
        let symbol = Symbol::new(name).ok().filter(|_| name.starts_with("_Z"))?;
        let options = DemangleOptions::new().no_params().no_return_type();
        symbol.structured_demangle(&mut short, &options)
    };
    match written {
        Ok(()) => Some(short.0),
        Err(_) if short.0.len() > MAX_NAME => Some(short.0 + "…"),
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_their_authors_wrote_them() {
        let check = |name: &str, expected: &str| assert_eq!(readable(name), expected);
        check("nanosleep", "nanosleep");
        check("nanosleep@@GLIBC_2.2.5", "nanosleep");
        check("_PyEval_EvalFrameDefault.cold", "_PyEval_EvalFrameDefault");
        check("lock_acquire.constprop.0.isra.0", "lock_acquire");
        check("_ZN5outer5Inner4waitEi", "outer::Inner::wait");
        check("_ZN5outer5Inner4waitEi.part.0", "outer::Inner::wait");
        check(
            "_ZN3std2io5Write9write_all17h0123456789abcdefE",
            "std::io::Write::write_all",
        );
        check("_RNvC6_123foo3bar", "123foo::bar");
        check("_Znonsense", "_Znonsense");
        check(".part", ".part");
    }
}
