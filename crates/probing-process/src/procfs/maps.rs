//! What a process has mapped: the lines of `/proc/<pid>/maps`.

use std::io;

use crate::access::source::Kernel;

/// One mapping. `path` is empty for anonymous memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    pub start: u64,
    pub end: u64,
    pub offset: u64,
    pub readable: bool,
    pub writable: bool,
    pub executable: bool,
    pub path: String,
}

impl Mapping {
    /// The file's name without its folders.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or_default()
    }

    pub fn is_file(&self) -> bool {
        self.path.starts_with('/')
    }

    pub fn contains(&self, address: u64) -> bool {
        (self.start..self.end).contains(&address)
    }
}

/// All mappings; none for a process without memory (ended, or the kernel's own).
pub fn read_maps(process: impl Kernel) -> io::Result<Vec<Mapping>> {
    // A path may hold any bytes but a line break, which the kernel escapes.
    let bytes = process.read_file("maps")?;
    Ok(parse(&String::from_utf8_lossy(&bytes)))
}

/// Reads the lines it understands; there are no others unless the text is not from the kernel.
fn parse(text: &str) -> Vec<Mapping> {
    text.lines().filter_map(parse_line).collect()
}

/// `7f6cef600000-7f6cef671000 r--p 00000000 fe:00 1234      /usr/lib/libpython3.12.so.1.0`
fn parse_line(line: &str) -> Option<Mapping> {
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let (start, end) = (hex(start)?, hex(end)?);
    let flags = fields.next()?.as_bytes();
    let offset = hex(fields.next()?)?;
    let (_device, _inode) = (fields.next()?, fields.next()?);
    let path = fields.next().unwrap_or_default().trim_start();
    (start < end && flags.len() == 4).then(|| Mapping {
        start,
        end,
        offset,
        readable: flags[0] == b'r',
        writable: flags[1] == b'w',
        executable: flags[2] == b'x',
        path: if path.starts_with(['/', '[']) {
            path.to_owned()
        } else {
            String::new()
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use probing_proto::process::Pid;
    use proptest::prelude::*;

    #[test]
    fn a_line_gives_range_rights_and_path() {
        let text = "7f00-7f10 r-xp 00001000 fe:00 12                 /opt/my python/lib (x)\n\
                    8000-9000 rw-p 00000000 00:00 0 \n";
        let maps = parse(text);
        assert_eq!(maps.len(), 2);
        assert_eq!(
            (maps[0].start, maps[0].end, maps[0].offset),
            (0x7f00, 0x7f10, 0x1000)
        );
        assert!(maps[0].readable && !maps[0].writable && maps[0].executable);
        assert_eq!(maps[0].path, "/opt/my python/lib (x)");
        assert_eq!(maps[0].name(), "lib (x)");
        assert_eq!(maps[1].path, "");
        assert!(maps[1].contains(0x8fff) && !maps[1].contains(0x9000));
    }

    #[test]
    fn our_own_maps_are_read() {
        let maps = read_maps(Pid(std::process::id())).unwrap();
        let here = our_own_maps_are_read as *const () as u64;
        assert!(maps.iter().any(|m| m.contains(here) && m.executable));
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "(?s).{0,200}") {
            parse(&text);
        }

        #[test]
        fn almost_a_line_is_survived(text in "[0-9a-f]{0,20}-[0-9a-f]{0,20} [rwxp-]{0,5} [0-9a-f]{0,20} .{0,30}") {
            for mapping in parse(&text) {
                prop_assert!(mapping.start < mapping.end);
            }
        }
    }
}
