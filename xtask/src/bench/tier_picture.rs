//! The picture of `tier`: bars of the setups in groups, as SVG without a script, for light and dark pages.

use std::fmt::Write;

/// One group of bars.
pub struct Bars<'a> {
    pub title: String,
    /// What each is called, how long it is, and what stands behind it.
    pub bars: Vec<(&'a str, (f64, String))>,
}

const WIDTH: u32 = 720;
/// Where bars begin, and how long the longest is.
const LEFT: u32 = 190;
const LONGEST: f64 = 420.0;
const BAR: u32 = 20;
const STEP: u32 = 26;
const TITLE: u32 = 34;

/// Draws groups one below the other, each with a scale of its own that begins with 0.
pub fn draw(groups: &[Bars<'_>]) -> String {
    let (mut body, mut y) = (String::new(), 4);
    for group in groups {
        let most = group.bars.iter().map(|(_, (length, _))| *length).fold(f64::MIN_POSITIVE, f64::max);
        line(
            &mut body,
            format_args!("<text class=\"title\" x=\"0\" y=\"{}\">{}</text>", y + 20, escaped(&group.title)),
        );
        y += TITLE;
        for (name, (length, label)) in &group.bars {
            let (width, middle) = (length / most * LONGEST, y + BAR / 2 + 5);
            line(
                &mut body,
                format_args!(
                    "<text x=\"{}\" y=\"{middle}\" text-anchor=\"end\">{}</text>",
                    LEFT - 8,
                    escaped(name)
                ),
            );
            line(
                &mut body,
                format_args!("<rect x=\"{LEFT}\" y=\"{y}\" width=\"{width:.1}\" height=\"{BAR}\"/>"),
            );
            let end = f64::from(LEFT) + width + 6.0;
            line(&mut body, format_args!("<text x=\"{end:.1}\" y=\"{middle}\">{}</text>", escaped(label)));
            y += STEP;
        }
    }
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" role=\"img\">\n\
         <style>text {{ font: 14px sans-serif; fill: #24292f }} .title {{ font-weight: bold }} rect {{ fill: #1f6f8b }}\n\
         @media (prefers-color-scheme: dark) {{ text {{ fill: #e6edf3 }} rect {{ fill: #4fb3d1 }} }}</style>\n{body}</svg>\n",
        height = y + 6
    )
}

fn line(body: &mut String, text: std::fmt::Arguments<'_>) {
    let _ = writeln!(body, "{text}"); // a string takes everything
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_bar_has_the_whole_length() {
        let bars = vec![("a & b", (10.0, "10".to_owned())), ("c", (5.0, "<5".to_owned()))];
        let picture = draw(&[Bars { title: "t".to_owned(), bars }]);
        for part in ["width=\"420.0\"", "width=\"210.0\"", ">a &amp; b<", ">&lt;5<", ">t<"] {
            assert!(picture.contains(part), "{part} in {picture}");
        }
        // Without anything to show, too.
        assert!(draw(&[]).starts_with("<svg "));
    }
}
