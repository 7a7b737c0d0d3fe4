//! A file inside a zip archive that a program runs from, read within bounds: the archive is the target's.
//!
//! Only what Python's own `zipimport` reads: files that are stored or deflated, without a password, in one part, with at most
//! 65 535 members.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::FileExt as _;

use flate2::read::DeflateDecoder;

/// The record at the end of an archive, and the longest comment after it.
const END: u64 = 22;
const MAX_COMMENT: u64 = 65_535;
/// Larger lists of members are not read.
const MAX_LIST: u64 = 16 << 20;
/// What stands before the name of a member in the list, and in front of the member.
const LISTED: usize = 46;
const LOCAL: usize = 30;
const STORED: u16 = 0;
const DEFLATED: u16 = 8;

/// What stands in the member of that name, if it has at most `max` bytes.
pub(crate) fn member(archive: &File, name: &[u8], max: u64) -> Option<Vec<u8>> {
    let length = archive.metadata().ok()?.len();
    let tail_at = length.saturating_sub(END + MAX_COMMENT);
    let tail = read(archive, tail_at, length - tail_at)?;
    let starts = tail.windows(4).rposition(|word| word == b"PK\x05\x06")?;
    let end = tail.get(starts..).filter(|end| end.len() >= END as usize)?;
    let (size, offset) = (u64::from(u32_at(end, 12)?), u64::from(u32_at(end, 16)?));
    // What stands before the archive, a `#!` line, may not be counted.
    let list_at = (tail_at + starts as u64).checked_sub(size)?;
    let before = list_at.checked_sub(offset)?;
    if size > MAX_LIST {
        return None;
    }
    let list = read(archive, list_at, size)?;
    let entry = entry(&list, name)?;
    let (packed, unpacked) = (u64::from(u32_at(entry, 20)?), u64::from(u32_at(entry, 24)?));
    if packed > max || unpacked > max {
        return None;
    }
    let local_at = before.checked_add(u64::from(u32_at(entry, 42)?))?;
    let local = read(archive, local_at, LOCAL as u64)?;
    if !local.starts_with(b"PK\x03\x04") {
        return None;
    }
    let more = u64::from(u16_at(&local, 26)?) + u64::from(u16_at(&local, 28)?);
    let data = read(archive, local_at + LOCAL as u64 + more, packed)?;
    match u16_at(entry, 10)? {
        STORED => Some(data),
        DEFLATED => {
            let mut text = Vec::new();
            let decoder = DeflateDecoder::new(&*data);
            decoder.take(unpacked).read_to_end(&mut text).ok()?;
            Some(text)
        }
        _ => None,
    }
}

/// What the list says of a member.
fn entry<'a>(mut list: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    while list.starts_with(b"PK\x01\x02") {
        let lengths = [28, 30, 32].map(|at| u16_at(list, at).map(usize::from));
        let [name_length, extra, comment] = lengths;
        let (end, more) = (LISTED + name_length?, extra? + comment?);
        if list.get(LISTED..end)? == name {
            return Some(list);
        }
        list = list.get(end + more..)?;
    }
    None
}

fn read(file: &File, at: u64, length: u64) -> Option<Vec<u8>> {
    // More than there is would be made room for in vain.
    if at.checked_add(length)? > file.metadata().ok()?.len() {
        return None;
    }
    let mut bytes = vec![0; usize::try_from(length).ok()?];
    file.read_exact_at(&mut bytes, at).ok()?;
    Some(bytes)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// An archive of one member, `a.py`, behind `before`.
    fn archive(before: &[u8], method: u16, data: &[u8], unpacked: u32) -> Vec<u8> {
        let name = b"a.py";
        let sizes = [
            0_u32.to_le_bytes(),
            (data.len() as u32).to_le_bytes(),
            unpacked.to_le_bytes(),
        ]
        .concat();
        let lengths = [4_u16.to_le_bytes(), 0_u16.to_le_bytes()].concat();
        let common = |made_by: &[u8]| {
            [
                made_by,
                &[20, 0, 0, 0],
                &method.to_le_bytes(),
                &[0; 4],
                &sizes,
                &lengths,
            ]
            .concat()
        };
        let local = [b"PK\x03\x04", &*common(&[]), name, data].concat();
        let listed = [b"PK\x01\x02", &*common(&[20, 0]), &[0; 14], name].concat();
        let end = [
            &[0, 0, 0, 0, 1, 0, 1, 0][..],
            &(listed.len() as u32).to_le_bytes(),
            &(local.len() as u32).to_le_bytes(),
            &[0, 0],
        ]
        .concat();
        [before, &local, &listed, b"PK\x05\x06", &end].concat()
    }

    fn check(bytes: &[u8], name: &str, text: Option<&[u8]>) {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        assert_eq!(member(&file, name.as_bytes(), 1000).as_deref(), text);
    }

    #[test]
    fn a_member_is_read_stored_or_deflated_whatever_stands_before() {
        check(
            &archive(b"", STORED, b"x = 1\n", 6),
            "a.py",
            Some(b"x = 1\n"),
        );
        check(
            &archive(b"#!/usr/bin/python\n", STORED, b"x = 1\n", 6),
            "a.py",
            Some(b"x = 1\n"),
        );
        let mut packed =
            flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::default());
        packed.write_all(&[b'x'; 500]).unwrap();
        let packed = packed.finish().unwrap();
        check(
            &archive(b"", DEFLATED, &packed, 500),
            "a.py",
            Some(&[b'x'; 500]),
        );
        check(&archive(b"", STORED, b"x = 1\n", 6), "b.py", None);
    }

    #[test]
    fn no_archive_makes_more_than_is_asked_for() {
        check(b"", "a.py", None);
        check(b"not an archive", "a.py", None);
        check(&archive(b"", STORED, &[b'x'; 1001], 1001), "a.py", None);
        check(&archive(b"", STORED, b"x", u32::MAX), "a.py", None);
        check(&archive(b"", 99, b"x", 1), "a.py", None);
        let whole = archive(b"", STORED, b"x = 1\n", 6);
        for end in 0..whole.len() {
            check(&whole[..end], "a.py", None);
        }
        // Whatever a byte of it says, it ends.
        let mut file = tempfile::tempfile().unwrap();
        for at in 0..whole.len() {
            let mut spoiled = whole.clone();
            spoiled[at] = 0xff;
            file.set_len(0).unwrap();
            std::io::Seek::rewind(&mut file).unwrap();
            file.write_all(&spoiled).unwrap();
            drop(member(&file, b"a.py", 1000));
        }
    }
}
