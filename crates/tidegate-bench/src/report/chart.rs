//! Charts as SVG, drawn by plotters, for the page and for `sweep --svg`.

use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

/// One line of a chart.
pub struct Series {
    /// For the legend.
    pub name: String,
    /// In order of x.
    pub points: Vec<(f64, f64)>,
}

/// A chart of lines.
pub struct Chart {
    /// What it shows.
    pub title: String,
    /// Below the horizontal axis.
    pub x: String,
    /// Beside the vertical axis.
    pub y: String,
    /// The lines.
    pub series: Vec<Series>,
    /// Single points, not lines.
    pub is_scatter: bool,
    /// Vertical axis in powers of ten.
    pub is_logarithmic: bool,
    /// Horizontal positions are those of percentiles: see [`percent_at`].
    pub is_percentile: bool,
    /// The lowest vertical extent, so that a flat line at nothing does not fill the chart.
    pub at_least: f64,
}

/// What a chart has beside its lines.
#[derive(Debug, Clone, Default)]
pub struct Frame {
    /// The ends of the horizontal axis where they are not those of the lines, so that charts can be read together.
    pub x: Option<(f64, f64)>,
    /// A part of it that is told apart.
    pub band: Option<(f64, f64)>,
    /// Points that are no measurements, such as targets.
    pub marks: Vec<(f64, f64)>,
    /// Words beside points.
    pub notes: Vec<(f64, f64, String)>,
    /// Whether the points of lines are marked.
    pub has_points: bool,
}

/// The percentile at a position of an axis that gives each further nine the same room.
pub fn percent_at(position: f64) -> f64 {
    100.0 - 100.0 * 10f64.powf(-position)
}

const SIZE: (u32, u32) = (760, 300);

/// Room on the right for the names of the lines.
const LEGEND: u32 = 170;

/// Characters that fit there.
const NAME: usize = 20;

const COLORS: [RGBColor; 8] = [
    RGBColor(31, 119, 180),
    RGBColor(214, 95, 14),
    RGBColor(176, 36, 60),
    RGBColor(44, 140, 80),
    RGBColor(120, 90, 180),
    RGBColor(120, 120, 120),
    RGBColor(0, 140, 150),
    RGBColor(150, 110, 40),
];
const BAND: RGBColor = RGBColor(238, 243, 248);
const INK: RGBColor = RGBColor(70, 78, 86);
const GRID: RGBColor = RGBColor(228, 231, 235);

impl Chart {
    /// The chart, or nothing where there is nothing to draw.
    pub fn svg(&self) -> Option<String> {
        self.svg_in(&Frame::default())
    }

    /// The same with a frame.
    pub fn svg_in(&self, frame: &Frame) -> Option<String> {
        let points = || {
            self.series
                .iter()
                .flat_map(|series| &series.points)
                .filter(|(x, y)| x.is_finite() && y.is_finite())
        };
        points().next()?;
        let x_low = points().map(|point| point.0).fold(f64::INFINITY, f64::min);
        let x_high = points().map(|point| point.0).fold(f64::NEG_INFINITY, f64::max);
        let (x_low, x_high) =
            frame.x.map_or((x_low, x_high), |(low, high)| (low.min(x_low), high.max(x_high)));
        let x_high = if x_high > x_low { x_high } else { x_low + 1.0 };
        let y_high = points().map(|point| point.1).fold(self.at_least, f64::max) * 1.08;
        // Nothing but zeros: the axis needs some length, and a logarithmic one would never end.
        let y_high = if y_high > 1e-9 { y_high } else { 1.0 };
        let mut svg = String::new();
        let drawn = if self.is_logarithmic {
            let positive = points().map(|point| point.1).filter(|y| *y > 1e-9);
            let y_low = positive.fold(f64::INFINITY, f64::min);
            let y_low = if y_low.is_finite() && y_low < y_high { y_low * 0.9 } else { y_high / 10.0 };
            self.draw(&mut svg, x_low..x_high, (y_low..y_high).log_scale(), (y_low, y_high), frame)
        } else {
            self.draw(&mut svg, x_low..x_high, 0.0..y_high, (0.0, y_high), frame)
        };
        drawn.ok().map(|()| svg)
    }

    fn draw<Y>(
        &self,
        svg: &mut String,
        x: std::ops::Range<f64>,
        y: Y,
        y_ends: (f64, f64),
        frame: &Frame,
    ) -> Result<(), DrawingAreaErrorKind<std::io::Error>>
    where
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: ValueFormatter<f64> + Ranged<ValueType = f64>,
    {
        let x_ends = (x.start, x.end);
        let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let text = |size: i32| ("sans-serif", size).into_font().color(&INK);
        let mut chart = ChartBuilder::on(&root)
            .caption(&self.title, text(16))
            .margin(8)
            .margin_right(LEGEND)
            .x_label_area_size(36)
            .y_label_area_size(64)
            .build_cartesian_2d(x, y)?;
        if let Some((begin, end)) = frame.band {
            let corners = [(begin, y_ends.0), (end, y_ends.1)];
            chart.draw_series(std::iter::once(Rectangle::new(corners, BAND.filled())))?;
        }
        let percentile = |position: &f64| {
            let percent = percent_at(*position);
            let digits = position.round().max(2.0) as usize - 2;
            format!("{percent:.digits$}%")
        };
        let plain = |value: &f64| short(*value);
        let x_format: &dyn Fn(&f64) -> String = if self.is_percentile { &percentile } else { &plain };
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(GRID)
            .axis_style(INK)
            .label_style(text(12))
            .axis_desc_style(text(12))
            .x_desc(&self.x)
            .y_desc(&self.y)
            .x_labels(8)
            .y_labels(6)
            .x_label_formatter(x_format)
            .y_label_formatter(&plain)
            .draw()?;
        for (number, (series, color)) in self.series.iter().zip(COLORS.iter().cycle()).enumerate() {
            let points = series.points.iter().copied().filter(|(_, y)| !self.is_logarithmic || *y > 0.0);
            if self.is_scatter {
                chart.draw_series(points.map(|point| Circle::new(point, 3, color.filled())))?;
            } else {
                chart.draw_series(LineSeries::new(points.clone(), color.stroke_width(2)))?;
                if frame.has_points {
                    chart.draw_series(points.map(|point| Circle::new(point, 4, color.filled())))?;
                }
            }
            // Beside the lines, where it hides none of them.
            let (x, y) = ((SIZE.0 - LEGEND) as i32 + 14, 40 + 20 * number as i32);
            root.draw(&PathElement::new([(x, y), (x + 14, y)], color.stroke_width(3)))?;
            let label = text(12).pos(Pos::new(HPos::Left, VPos::Center));
            root.draw(&Text::new(cut(&series.name), (x + 20, y), label))?;
        }
        let marks = frame.marks.iter().map(|mark| Cross::new(*mark, 4, INK.stroke_width(2)));
        chart.draw_series(marks)?;
        for (x, y, note) in &frame.notes {
            // Towards the middle, so that none stands over the legend.
            let is_left = *x - x_ends.0 <= 0.7 * (x_ends.1 - x_ends.0);
            let (side, at) = if is_left { (HPos::Left, 6) } else { (HPos::Right, -6) };
            let label = text(12).pos(Pos::new(side, VPos::Bottom));
            chart.draw_series(std::iter::once(
                EmptyElement::at((*x, *y)) + Text::new(note.clone(), (at, -4), label),
            ))?;
        }
        root.present()
    }
}

/// A name as long as there is room for it.
fn cut(name: &str) -> String {
    let name: String = name.chars().filter(|character| !character.is_control()).collect();
    if name.chars().count() <= NAME {
        return name;
    }
    name.chars().take(NAME - 1).chain(['…']).collect()
}

/// `1.5k`, `20`, `0.25`.
fn short(value: f64) -> String {
    let (value, unit) = match value.abs() {
        v if v >= 1e9 => (value / 1e9, "G"),
        v if v >= 1e6 => (value / 1e6, "M"),
        v if v >= 1e3 => (value / 1e3, "k"),
        _ => (value, ""),
    };
    let text = format!("{value:.3}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    format!("{text}{unit}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart(points: Vec<(f64, f64)>, is_logarithmic: bool) -> Chart {
        let series = vec![
            Series { name: "p50".into(), points: points.clone() },
            Series { name: "a < b & c".into(), points },
        ];
        Chart {
            title: "T".into(),
            x: "x".into(),
            y: "y".into(),
            series,
            is_scatter: is_logarithmic,
            is_logarithmic,
            is_percentile: is_logarithmic,
            at_least: 0.0,
        }
    }

    #[test]
    fn charts_are_drawn_and_escape_what_they_name() {
        for is_logarithmic in [false, true] {
            let svg = chart(vec![(0.0, 1.0), (1.0, 3.0), (2.0, 0.0)], is_logarithmic).svg().unwrap();
            assert!(svg.starts_with("<svg") && svg.contains("a &lt; b &amp; c"), "{svg}");
        }
        assert!(chart(vec![], false).svg().is_none());
        assert!(chart(vec![(1.0, 0.0)], true).svg().is_some());
        assert!(chart(vec![(f64::NAN, 1.0)], false).svg().is_none());
    }

    #[test]
    fn charts_are_framed() {
        let frame = Frame {
            x: Some((0.0, 100.0)),
            band: Some((10.0, 20.0)),
            marks: vec![(2.0, 2.0)],
            notes: vec![(1.0, 3.0, "<1>".into())],
            has_points: true,
        };
        for is_logarithmic in [false, true] {
            let chart = Chart { is_scatter: false, ..chart(vec![(0.0, 1.0), (1.0, 3.0)], is_logarithmic) };
            let svg = chart.svg_in(&frame).unwrap();
            assert!(svg.contains("&lt;1&gt;") && svg.contains("<circle"), "{svg}");
        }
        assert_eq!(cut("a name that is longer than its room"), "a name that is long…");
    }

    #[test]
    fn numbers_on_axes_are_short() {
        assert_eq!([1_500.0, 20.0, 0.25, 2e6].map(short), ["1.5k", "20", "0.25", "2M"]);
        assert_eq!(percent_at(2.0), 99.0);
    }
}
