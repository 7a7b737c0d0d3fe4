//! The fixed Python text around the source: nothing that the source does gets out, and its failure comes back.
//!
//! An exception that left a pending call would kill the target, and one that left `PyRun_*` would be printed to
//! its stderr. The text runs in a dictionary of its own, so nothing is left in `__main__`; at the end it breaks the
//! circle of that dictionary and its functions, so nothing is left for the garbage collector either.

use std::fmt::Write as _;

/// The longest source that is taken.
pub(crate) const SOURCE_LIMIT: usize = 1 << 20;
/// Name of the variable with the result: empty bytes, or what went wrong.
pub(crate) const RESULT: &str = "failure";

/// `run()` gives empty bytes, or the failure as text. `source`, `report` and `blocked` are written before it.
///
/// Every Python thread waits while this is compiled and run. So what is rarely needed stays text, and `compile` is not
/// called: its first call in a process costs a millisecond, in which it makes the classes of syntax trees; `exec` needs
/// none. The short sleep lets the program's threads go on before the source is compiled.
const RUN: &str = "
def run():
    names = {'__name__': '__probing__', '__builtins__': __builtins__, 'blocked_signals': blocked}
    try:
        from time import sleep
        sleep(1e-4)
        exec(source, names)
        return b''
    except BaseException as error:
        told = {'error': error, 'names': names, '__builtins__': __builtins__}
        exec(report, told)
        return told['failure']
";

/// Puts an exception into words.
const REPORT: &str = "
text = type(error).__name__
try:
    text += ': ' + str(error)
    lines = [0]
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_globals is names:
            lines.append(trace.tb_lineno)
        trace = trace.tb_next
    if lines[-1]:
        text += ' (line %d)' % lines[-1]
except BaseException:
    pass
failure = text.encode('utf-8', 'replace')[:4000]
del error, names
";

/// The text for injected code: leaves the result in [`RESULT`].
pub(crate) fn in_thread(source: &str, blocked: u64) -> String {
    format!(
        "{}{RUN}{RESULT} = run()\ndel run\n",
        preamble(source, blocked)
    )
}

/// What the script writes in front of its result.
pub(crate) const ANSWERED: u8 = b'=';

/// The text for `debugger_script_path`: main runs it between two bytecodes, so it only starts a thread.
///
/// `folder` holds a file `ask`, locked by us as long as we wait. Who renames it first decides: the script (runs)
/// or we (cancelled). If nobody holds the lock any more we are dead: clean up, run nothing. The result is written
/// into that file, which is opened before: a target that cannot open it leaves the question to us. Calls that release the GIL are few in the thread: with a busy main each costs it 5 ms.
/// An interrupt that arrives inside main's part is main's: it gets it again.
pub(crate) fn in_file(source: &str, blocked: u64, folder: &str) -> String {
    let folder = bytes_literal(folder.as_bytes());
    let answered = char::from(ANSWERED);
    format!(
        "{preamble}{RUN}
import os, _thread
folder = {folder}
def waited_for(handle):
    try:
        os.lockf(handle, os.F_TEST, 0)
    except OSError:
        return True
    for name in os.listdir(folder):
        os.unlink(folder + b'/' + name)
    os.rmdir(folder)
    return False
def thread(handle):
    from _signal import SIG_SETMASK, pthread_sigmask, valid_signals
    pthread_sigmask(SIG_SETMASK, valid_signals())
    try:
        os.write(handle, b'{answered}' + run())
        waited_for(handle)
    except OSError:
        pass
    finally:
        os.close(handle)
        globals().clear()
try:
    handle = os.open(folder + b'/ask', os.O_RDWR | os.O_CLOEXEC)
    try:
        os.rename(folder + b'/ask', folder + b'/taken')
    except BaseException:
        os.close(handle)
        raise
    if waited_for(handle):
        _thread.start_new_thread(thread, (handle,))
    else:
        os.close(handle)
except KeyboardInterrupt:
    _thread.interrupt_main()
except (OSError, RuntimeError):
    pass
",
        preamble = preamble(source, blocked)
    )
}

fn preamble(source: &str, blocked: u64) -> String {
    let numbers: Vec<String> = (1..=64)
        .filter(|signal| blocked >> (signal - 1) & 1 == 1)
        .map(|signal| signal.to_string())
        .collect();
    let [source, report] = [source, REPORT].map(|text| bytes_literal(text.as_bytes()));
    let blocked = numbers.join(", ");
    format!("source = {source}\nreport = {report}\nblocked = frozenset([{blocked}])\n")
}

/// A Python literal of any bytes, itself plain ASCII without a line break or NUL.
fn bytes_literal(bytes: &[u8]) -> String {
    let mut literal = String::with_capacity(bytes.len() + bytes.len() / 8 + 3);
    literal.push_str("b'");
    for &byte in bytes {
        match byte {
            b'\n' => literal.push_str("\\n"),
            b'\'' | b'\\' => literal.extend(['\\', char::from(byte)]),
            b' '..=b'~' => literal.push(char::from(byte)),
            // Writing to a String does not fail.
            _ => _ = write!(literal, "\\x{byte:02x}"),
        }
    }
    literal.push('\'');
    literal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_source_becomes_one_ascii_line() {
        assert_eq!(bytes_literal(b"a'b\\c\n\0\xff"), r"b'a\'b\\c\n\x00\xff'");
        let preamble = preamble("x", 0b101);
        assert!(preamble.starts_with("source = b'x'\n"), "{preamble}");
        assert!(
            preamble.ends_with("\nblocked = frozenset([1, 3])\n"),
            "{preamble}"
        );
    }
}
