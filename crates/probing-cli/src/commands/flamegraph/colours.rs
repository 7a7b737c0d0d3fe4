//! Colours of calls: warm for the program's own code, cool for libraries.
//!
//! The same function has the same colour in every picture.

use inferno::flamegraph::color::{Color, PaletteMap};
use probing_client::FrameLocation;

use crate::commands::flamegraph::drawing::{Names, Origin};

/// For people, below the picture's title.
pub(super) const LEGEND: &str =
    "orange: the program, blue: libraries, green: Python's own, grey: no code";

/// What all calls are in, which is shown as `all`, has no name.
const ALL: &str = "";

/// Two ends of a scale.
type Scale = ([u8; 3], [u8; 3]);

const PROGRAM: Scale = ([0xff, 0xb2, 0x66], [0xf0, 0x8a, 0x4b]);
const LIBRARY: Scale = ([0xa9, 0xcc, 0xf0], [0x7f, 0xaa, 0xdd]);
const PYTHON: Scale = ([0xb9, 0xdd, 0xb0], [0x94, 0xc4, 0x8c]);
const WORDS: Scale = ([0xd8, 0xd8, 0xd8], [0xc4, 0xc4, 0xc4]);

pub(super) fn palette(places: &[FrameLocation], names: &Names) -> PaletteMap {
    let mut colours = PaletteMap::default();
    colours.insert(ALL, on(WORDS, ALL));
    for (place, name) in places.iter().zip(&names.0) {
        let scale = match place.file.as_deref().map(Origin::of) {
            Some(Origin::Program) => PROGRAM,
            Some(Origin::Library(_)) => LIBRARY,
            Some(Origin::Python(_)) => PYTHON,
            None => WORDS,
        };
        colours.insert(name, on(scale, &place.func));
    }
    colours
}

/// A colour of the scale that hangs on the text.
fn on((from, to): Scale, text: &str) -> Color {
    let hash = text.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    let place = hash >> 16 & 0xff;
    let mix = |part: usize| {
        let (from, to) = (u32::from(from[part]), u32::from(to[part]));
        ((from * (0xff - place) + to * place) / 0xff) as u8
    };
    Color {
        r: mix(0),
        g: mix(1),
        b: mix(2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_colour_hangs_on_whose_code_it_is_and_on_the_function() {
        let place = |func: &str, file: &str| FrameLocation {
            func: func.into(),
            file: Some(std::path::Path::new(file).into()),
            line: Some(1),
        };
        let places = [
            place("step", "/a/train.py"),
            place("linear", "/v/lib/python3.12/site-packages/torch/nn.py"),
            place("get", "/usr/lib/python3.12/queue.py"),
            FrameLocation::words("rank 3"),
        ];
        let names = Names::of(&places);
        let colours = palette(&places, &names);
        let [program, library, python, words] =
            [0, 1, 2, 3].map(|place: usize| colours.get(&names.0[place]).unwrap());
        assert!(program.r > program.b && library.b > library.r);
        assert!(python.g > python.r && python.g > python.b);
        assert!(words.r == words.g && words.g == words.b);
        assert_ne!(on(PROGRAM, "step"), on(PROGRAM, "load"));
        assert_eq!(colours.get(ALL), Some(on(WORDS, ALL)));
    }
}
