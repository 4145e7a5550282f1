//! The chart "The cost of a request": the figures that decided the shape of Tidegate, as bars on one page.
//! `examples/site/downloads/cost-of-a-request.csv` holds the same figures and is what this reads. Used by
//! `site`.

use super::pdf::{Face, Page};

const FIGURES: &str = include_str!("../../../examples/site/downloads/cost-of-a-request.csv");

const OURS: [f64; 3] = [0.043, 0.310, 0.424];
const OTHERS: [f64; 3] = [0.620, 0.690, 0.720];

/// A PDF of one A4 page, lying.
pub fn document() -> Vec<u8> {
    const TITLE: &str = "The cost of a request";
    let mut page = Page::new(842, 595);
    page.text(Face::Bold, 24, 60.0, 520.0, TITLE);
    let subject = "CPU microseconds of one core for a kept-alive request of 1 KiB, over loopback, saturated.";
    page.text(Face::Regular, 12, 60.0, 496.0, subject);
    let figures = figures();
    let most = figures.iter().map(|&(_, figure)| figure).fold(0.0, f64::max);
    for (index, &(name, figure)) in figures.iter().enumerate() {
        let y = 440.0 - 38.0 * index as f64;
        let is_ours = name.starts_with("own ");
        page.text(Face::Regular, 12, 60.0, y + 6.0, name);
        page.rectangle(if is_ours { OURS } else { OTHERS }, 330.0, y, 380.0 * figure / most, 22.0);
        let face = if is_ours { Face::Bold } else { Face::Regular };
        page.text(face, 12, 340.0 + 380.0 * figure / most, y + 6.0, &format!("{figure:.2}"));
    }
    let note = "Measured before the design was decided. The floor sends the same bytes and parses nothing.";
    page.text(Face::Regular, 10, 60.0, 60.0, note);
    page.document(TITLE)
}

/// Name and figure of each line behind the header.
fn figures() -> Vec<(&'static str, f64)> {
    let parse = |line: &'static str| {
        let (name, figure) = line.rsplit_once(',')?;
        Some((name, figure.parse().ok()?))
    };
    FIGURES.lines().skip(1).filter_map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_is_a_figure() {
        assert_eq!(figures().len(), FIGURES.lines().count() - 1);
    }

    #[test]
    fn the_same_every_time() {
        assert_eq!(document(), document());
    }
}
