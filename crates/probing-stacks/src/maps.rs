//! What a process has mapped from files: the lines of `/proc/<pid>/maps`.

use std::fs;
use std::io;

use probing_proto::process::Pid;

/// One mapping of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) offset: u64,
    pub(crate) path: String,
}

impl Mapping {
    /// The file's name without its folders.
    pub(crate) fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }
}

/// The mapped files; empty for a process without memory (ended, or the kernel's own).
pub(crate) fn of(pid: Pid) -> io::Result<Vec<Mapping>> {
    let bytes = fs::read(format!("/proc/{pid}/maps"))?;
    Ok(parse(&String::from_utf8_lossy(&bytes)))
}

fn parse(text: &str) -> Vec<Mapping> {
    text.lines().filter_map(parse_line).collect()
}

/// `7f6cef600000-7f6cef671000 r--p 00000000 fe:00 1234      /usr/lib/libpython3.12.so.1.0`
fn parse_line(line: &str) -> Option<Mapping> {
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let (start, end) = (hex(start)?, hex(end)?);
    let offset = hex(fields.nth(1)?)?;
    let path = fields.nth(2)?.trim_start();
    (start < end && path.starts_with('/')).then(|| Mapping {
        start,
        end,
        offset,
        path: path.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_line_gives_range_offset_and_path() {
        let text = "7f00-7f10 r-xp 00001000 fe:00 12                 /opt/my python/lib (x)\n\
                    8000-9000 rw-p 00000000 00:00 0 \n\
                    9000-a000 rw-p 00000000 00:00 0                  [heap]\n";
        let mapping = Mapping {
            start: 0x7f00,
            end: 0x7f10,
            offset: 0x1000,
            path: "/opt/my python/lib (x)".to_owned(),
        };
        assert_eq!(mapping.name(), "lib (x)");
        assert_eq!(parse(text), [mapping]);
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "(?s).{0,200}") {
            parse(&text);
        }
    }
}
