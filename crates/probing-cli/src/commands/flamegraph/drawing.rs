//! Samples as a file: a picture, or JSON or lines for other tools.

use std::path::{Path, PathBuf};

use inferno::flamegraph::color::{BackgroundColor, Color, StrokeColor};
use inferno::flamegraph::{self, Options, TextTruncateDirection};
use probing_client::{FrameLocation, Samples};
use probing_proto::speedscope::{SpeedscopeFile, SpeedscopeFrame};

use crate::arguments::FlamegraphFormat;
use crate::commands::flamegraph::colours;
use crate::json;
use probing_proto::text::visible;

/// Folders of libraries: what comes after one is how their files are known.
const LIBRARIES: [&str; 2] = ["site-packages", "dist-packages"];

const PAPER: Color = Color {
    r: 0xfd,
    g: 0xfd,
    b: 0xfd,
};

pub(super) fn drawn(
    samples: &Samples,
    format: FlamegraphFormat,
    title: &str,
) -> anyhow::Result<Vec<u8>> {
    match format {
        FlamegraphFormat::Svg => svg(samples, title),
        FlamegraphFormat::Speedscope => Ok(json::line(&speedscope(samples, title))?.into_bytes()),
        FlamegraphFormat::Folded => Ok(folded(samples)
            .iter()
            .flat_map(|line| format!("{line}\n").into_bytes())
            .collect()),
    }
}

fn svg(samples: &Samples, title: &str) -> anyhow::Result<Vec<u8>> {
    let lines = folded(samples);
    let places = samples.calls.places();
    let mut colours = colours::palette(places, &Names::of(places));
    let mut options = Options::default();
    options.title = visible::line(title).into_owned();
    options.subtitle = Some(format!(
        "{} samples in {:.1} s ({})",
        samples.taken,
        samples.took.as_secs_f64(),
        colours::LEGEND
    ));
    options.bgcolors = Some(BackgroundColor::Flat(PAPER));
    // Between calls that are in the same function.
    options.stroke_color = StrokeColor::Color(PAPER);
    options.palette_map = Some(&mut colours);
    // The name of the function comes first.
    options.text_truncate_direction = TextTruncateDirection::Right;
    let mut picture = Vec::new();
    flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), &mut picture)?;
    Ok(picture)
}

fn speedscope(samples: &Samples, title: &str) -> SpeedscopeFile {
    let frames = samples.calls.places().iter().map(|place| SpeedscopeFrame {
        name: place.func.to_string(),
        file: place.file.as_ref().map(|file| file.display().to_string()),
        line: place.line,
    });
    let seconds = samples.interval.as_secs_f64();
    let stacks = samples.calls.stacks();
    SpeedscopeFile::new(
        title.to_owned(),
        frames.collect(),
        stacks.map(|(stack, seen)| (stack, seen as f64 * seconds)),
    )
}

/// `outer;inner 42`, sorted.
fn folded(samples: &Samples) -> Vec<String> {
    let names = Names::of(samples.calls.places());
    let mut lines: Vec<String> = samples
        .calls
        .stacks()
        .map(|(stack, seen)| {
            let names: Vec<&str> = stack.iter().map(|place| names.0[*place].as_str()).collect();
            format!("{} {seen}", names.join(";"))
        })
        .collect();
    lines.sort_unstable();
    lines
}

/// What to call each place: `func (file:line)`, the file without the folders that all of the program's files share.
pub(super) struct Names(pub(super) Vec<String>);

impl Names {
    pub(super) fn of(places: &[FrameLocation]) -> Self {
        let files = places.iter().filter_map(|place| place.file.as_deref());
        let shared = shared_folder(files.filter(|file| Origin::of(file) == Origin::Program));
        let name = |place: &FrameLocation| {
            let Some(file) = place.file.as_deref() else {
                return clean(&place.func);
            };
            let shown = match Origin::of(file) {
                Origin::Program => file.strip_prefix(&shared).unwrap_or(file).to_owned(),
                Origin::Library(path) | Origin::Python(path) => path,
            };
            let line = place
                .line
                .map_or_else(String::new, |line| format!(":{line}"));
            clean(&format!("{} ({}{line})", place.func, shown.display()))
        };
        Self(places.iter().map(name).collect())
    }
}

/// Whose code a file holds.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Program,
    /// By its path below `site-packages`.
    Library(PathBuf),
    /// By its path below `lib/python3.12`.
    Python(PathBuf),
}

impl Origin {
    pub(super) fn of(file: &Path) -> Self {
        let parts: Vec<&str> = file.iter().filter_map(|part| part.to_str()).collect();
        let is_python =
            |at: usize| at > 0 && parts[at - 1] == "lib" && parts[at].starts_with("python3");
        let is_library = |at: usize| LIBRARIES.contains(&parts[at]);
        let mut folders = (0..parts.len().saturating_sub(1)).rev();
        match folders.find(|at| is_library(*at) || is_python(*at)) {
            Some(at) if is_library(at) => Self::Library(parts[at + 1..].iter().collect()),
            Some(at) => Self::Python(parts[at + 1..].iter().collect()),
            None => Self::Program,
        }
    }
}

/// The innermost folder that holds all of these.
fn shared_folder<'a>(files: impl Iterator<Item = &'a Path>) -> PathBuf {
    let folders = files
        .filter(|file| file.is_absolute())
        .filter_map(Path::parent);
    let shared = folders.map(Path::to_owned).reduce(|shared, folder| {
        let same = shared.iter().zip(&folder).take_while(|(a, b)| a == b);
        same.map(|(part, _)| part).collect()
    });
    shared.unwrap_or_default()
}

/// Without what the lines of a folded file mean otherwise, or a terminal obeys: names can be anything.
fn clean(name: &str) -> String {
    let character = |character: char| match character {
        ';' => ':',
        c => c,
    };
    visible::line(name).chars().map(character).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(places: &[(&str, &str)]) -> Vec<String> {
        let place = |(func, file): &(&str, &str)| FrameLocation {
            func: (*func).into(),
            file: Some(Path::new(file).into()),
            line: Some(7),
        };
        Names::of(&places.iter().map(place).collect::<Vec<_>>()).0
    }

    #[test]
    fn files_are_named_as_short_as_they_can_be() {
        let check = |files: &[&str], shown: &[&str]| {
            let places: Vec<_> = files.iter().map(|file| ("f", *file)).collect();
            let expected: Vec<_> = shown.iter().map(|name| format!("f ({name}:7)")).collect();
            assert_eq!(names(&places), expected);
        };
        check(&["/home/me/train.py"], &["train.py"]);
        check(
            &["/home/me/train.py", "/home/me/models/net.py"],
            &["train.py", "models/net.py"],
        );
        check(
            &[
                "/a/train.py",
                "/opt/v/lib/python3.12/site-packages/torch/nn/linear.py",
                "/usr/lib/python3.12/queue.py",
            ],
            &["train.py", "torch/nn/linear.py", "queue.py"],
        );
        check(
            &["<string>", "train.py", "/a/b.py"],
            &["<string>", "train.py", "b.py"],
        );
    }

    #[test]
    fn a_name_cannot_break_a_line() {
        assert_eq!(
            names(&[("a;b\n", "/x\u{1b}.py")]),
            [r"a:b\x0a (x\x1b.py:7)"]
        );
    }
}
