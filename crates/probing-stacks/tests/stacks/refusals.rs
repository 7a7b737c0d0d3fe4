//! What cannot be read is said so.

use std::process::{Command, Stdio};

use probing_process::error::ProcessError;
use probing_stacks::StackError;

use crate::target::try_read;

#[test]
fn what_is_no_python_is_refused() {
    let mut cat = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
    let error = loop {
        // Between fork and exec it is still this test.
        match try_read(cat.id()) {
            Err(StackError::Process(ProcessError::NotPython { program, .. }))
                if !program.ends_with("cat") => {}
            Err(
                StackError::Process(ProcessError::WithoutMemory { .. })
                | StackError::NotInitialized { .. },
            ) => {}
            other => break other.unwrap_err(),
        }
    };
    assert!(
        matches!(error, StackError::Process(ProcessError::NotPython { .. })),
        "{error}"
    );
    cat.kill().unwrap();
    // Ended, but nobody has asked for its status yet.
    probing_testkit::wait_until("it has ended", || {
        matches!(
            try_read(cat.id()),
            Err(StackError::Process(ProcessError::Ended { .. }))
        )
    });
    cat.wait().unwrap();
    let error = try_read(cat.id()).unwrap_err();
    assert!(
        matches!(
            error,
            StackError::Process(ProcessError::NoSuchProcess { .. })
        ),
        "{error}"
    );
}
