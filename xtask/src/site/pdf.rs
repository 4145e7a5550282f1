//! A one-page PDF file from lines of text and filled rectangles: PDF 1.4 (ISO 32000), with the Helvetica that
//! every reader has. Used by `chart`. Text is ASCII; the origin is the lower left corner; units are points.

use std::fmt::Write;

/// A page being drawn.
#[derive(Debug)]
pub struct Page {
    width: u32,
    height: u32,
    content: String,
}

/// The two faces that the page knows.
#[derive(Debug, Clone, Copy)]
pub enum Face {
    Regular,
    Bold,
}

impl Page {
    pub fn new(width: u32, height: u32) -> Self {
        Self { width, height, content: String::new() }
    }

    /// Writes a line of text whose base line begins at the point.
    pub fn text(&mut self, face: Face, size: u32, x: f64, y: f64, text: &str) {
        let face = match face {
            Face::Regular => "F1",
            Face::Bold => "F2",
        };
        let escaped = text.replace('\\', "\\\\").replace('(', "\\(").replace(')', "\\)");
        self.push(format_args!("0 g BT /{face} {size} Tf {x:.1} {y:.1} Td ({escaped}) Tj ET\n"));
    }

    /// Fills a rectangle; the parts of the colour go from 0 to 1.
    pub fn rectangle(&mut self, colour: [f64; 3], x: f64, y: f64, width: f64, height: f64) {
        let [red, green, blue] = colour;
        self.push(format_args!(
            "{red:.3} {green:.3} {blue:.3} rg {x:.1} {y:.1} {width:.1} {height:.1} re f\n"
        ));
    }

    fn push(&mut self, operators: std::fmt::Arguments<'_>) {
        self.content.write_fmt(operators).expect("invariant: writing to a string succeeds");
    }

    /// The file: the objects, the table of their places, the trailer.
    pub fn document(&self, title: &str) -> Vec<u8> {
        let Self { width, height, content } = self;
        let objects = [
            "<< /Type /Catalog /Pages 2 0 R >>".to_owned(),
            "<< /Type /Pages /Kids [3 0 R] /Count 1 >>".to_owned(),
            format!(
                "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 {width} {height}] /Contents 4 0 R \
                 /Resources << /Font << /F1 5 0 R /F2 6 0 R >> >> >>"
            ),
            format!("<< /Length {} >>\nstream\n{content}endstream", content.len()),
            "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>".to_owned(),
            "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica-Bold >>".to_owned(),
            format!("<< /Title ({title}) /Producer (cargo xtask site) >>"),
        ];
        let mut file = String::from("%PDF-1.4\n");
        let mut places = Vec::new();
        for (index, object) in objects.iter().enumerate() {
            places.push(file.len());
            file += &format!("{} 0 obj\n{object}\nendobj\n", index + 1);
        }
        let table = file.len();
        let count = objects.len() + 1;
        file += &format!("xref\n0 {count}\n0000000000 65535 f \n");
        for place in places {
            file += &format!("{place:010} 00000 n \n");
        }
        file += &format!("trailer\n<< /Size {count} /Root 1 0 R /Info 7 0 R >>\nstartxref\n{table}\n%%EOF\n");
        file.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_points_at_the_objects() {
        let mut page = Page::new(100, 100);
        page.text(Face::Regular, 10, 1.0, 2.0, "a (b) \\");
        page.rectangle([0.0, 0.5, 1.0], 1.0, 2.0, 3.0, 4.0);
        let file = String::from_utf8(page.document("Title")).unwrap();
        assert!(file.contains(r"(a \(b\) \\) Tj"));
        let entries = file.lines().filter(|line| line.ends_with(" 00000 n "));
        let mut count = 0;
        for (index, entry) in entries.enumerate() {
            let place: usize = entry[..10].parse().unwrap();
            assert!(file[place..].starts_with(&format!("{} 0 obj\n", index + 1)));
            count += 1;
        }
        assert_eq!(count, 7);
        let table: usize = file.lines().rev().nth(1).unwrap().parse().unwrap();
        assert!(file[table..].starts_with("xref\n"));
    }
}
