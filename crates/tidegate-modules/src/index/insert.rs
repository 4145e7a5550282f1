//! The texts above and below a listing: `HEADER.html`, `README.md` and whatever else the settings name.
//!
//! Read on the blocking pool, once it is decided that the client may have them. HTML goes in as it is: who may write
//! it may write a page beside it as well, and the policy of the listing lets no script run either way.
//! Markdown is rendered with raw HTML shown as text; anything else is shown as text. The files stay in the
//! listing: it shows what is there.

use super::text::escape;
use pulldown_cmark::{CowStr, Event, HeadingLevel, Options, Parser, Tag, TagEnd};
use std::os::fd::AsFd;
use tidegate_http::media_type::extension;
use tidegate_io::file::{Opened, Patience, read_whole};

/// Most bytes of a text; a larger one is left out, since half of it might be no page.
pub const MOST_TEXT: u64 = 256 << 10;

/// Where a text stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Above the entries.
    Header,
    /// Below the entries.
    Readme,
}

/// A file that is shown on a listing.
#[derive(Debug)]
pub struct Text {
    /// Where.
    pub place: Place,
    /// Its path below the root, whose extension says what it is.
    pub relative: Vec<u8>,
    /// The file.
    pub file: Opened,
}

/// The text for a place, as HTML; `None` where there is none.
pub fn html(texts: &[Text], place: Place) -> Option<Vec<u8>> {
    let Text { relative, file, .. } = texts.iter().find(|text| text.place == place)?;
    let bytes = read_whole(file.fd.as_fd(), file.meta.len as usize, Patience::Wait).ok()?;
    Some(render(relative, bytes))
}

fn render(path: &[u8], bytes: Vec<u8>) -> Vec<u8> {
    let extension = extension(path).unwrap_or_default().to_ascii_lowercase();
    if matches!(&*extension, "html" | "htm") {
        return bytes;
    }
    let text = String::from_utf8_lossy(&bytes);
    if matches!(&*extension, "md" | "markdown") {
        // A text of nothing but nesting grows to many times its size: it is shown as it was written.
        let html = markdown(&text);
        if html.len() as u64 <= 4 * MOST_TEXT {
            return html.into_bytes();
        }
    }
    let mut html = b"<pre>".to_vec();
    escape(&mut html, &text);
    html.extend_from_slice(b"</pre>");
    html
}

fn markdown(text: &str) -> String {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut html = String::with_capacity(text.len() * 3 / 2);
    pulldown_cmark::html::push_html(&mut html, Parser::new_ext(text, options).map(tamed));
    html
}

/// An event without what a text may not bring in: HTML, links that run something, a second main heading.
fn tamed(event: Event<'_>) -> Event<'_> {
    match event {
        Event::Html(html) | Event::InlineHtml(html) => Event::Text(html),
        Event::Start(Tag::Link { link_type, dest_url, title, id }) => {
            Event::Start(Tag::Link { link_type, dest_url: harmless(dest_url), title, id })
        }
        Event::Start(Tag::Image { link_type, dest_url, title, id }) => {
            Event::Start(Tag::Image { link_type, dest_url: harmless(dest_url), title, id })
        }
        Event::Start(Tag::Heading { level, id, classes, attrs }) => {
            Event::Start(Tag::Heading { level: lower(level), id, classes, attrs })
        }
        Event::End(TagEnd::Heading(level)) => Event::End(TagEnd::Heading(lower(level))),
        other => other,
    }
}

/// The destination, where it is relative or of a scheme that leads to a page or a letter.
fn harmless(destination: CowStr<'_>) -> CowStr<'_> {
    let scheme = destination.split(['/', '?', '#']).next().and_then(|start| start.split_once(':'));
    match scheme {
        None => destination,
        Some((scheme, _))
            if ["http", "https", "mailto", "ftp"].iter().any(|known| scheme.eq_ignore_ascii_case(known)) =>
        {
            destination
        }
        Some(_) => CowStr::Borrowed("#"),
    }
}

fn lower(level: HeadingLevel) -> HeadingLevel {
    match level {
        HeadingLevel::H1 => HeadingLevel::H2,
        HeadingLevel::H2 => HeadingLevel::H3,
        HeadingLevel::H3 => HeadingLevel::H4,
        HeadingLevel::H4 => HeadingLevel::H5,
        HeadingLevel::H5 | HeadingLevel::H6 => HeadingLevel::H6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nesting_does_not_grow_without_bound() {
        let html = render(b"README.md", vec![b'>'; MOST_TEXT as usize]);
        assert!(html.starts_with(b"<pre>&gt;&gt;"));
    }

    #[test]
    fn by_extension() {
        let cases = [
            ("HEADER.html", "<b>as it is</b>", "<b>as it is</b>"),
            ("README", "a <b> & c", "<pre>a &lt;b&gt; &amp; c</pre>"),
            ("README.txt", "x\n  y", "<pre>x\n  y</pre>"),
            ("README.md", "# Title\n\n*Text*", "<h2>Title</h2>\n<p><em>Text</em></p>\n"),
            ("a.MD", "<script>1</script>", "&lt;script&gt;1&lt;/script&gt;"),
            ("a.md", "a <img src=x> b", "<p>a &lt;img src=x&gt; b</p>\n"),
            ("a.md", "[x](javascript:alert(1))", "<p><a href=\"#\">x</a></p>\n"),
            ("a.md", "[x](JaVaScript&#58;alert(1))", "<p><a href=\"#\">x</a></p>\n"),
            ("a.md", "![x](data:image/svg+xml,a)", "<p><img src=\"#\" alt=\"x\" /></p>\n"),
            (
                "a.md",
                "[x](a/b:c) <https://a.example/>",
                "<p><a href=\"a/b:c\">x</a> <a href=\"https://a.example/\">https://a.example/</a></p>\n",
            ),
        ];
        for (name, text, expected) in cases {
            let html = render(name.as_bytes(), text.as_bytes().to_vec());
            assert_eq!(String::from_utf8(html).unwrap(), expected, "{name} {text}");
        }
    }
}
