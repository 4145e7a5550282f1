//! Sitemaps (sitemaps.org): the URLs in one, or the further sitemaps that it names.
//!
//! Only `loc` is looked for. What is no sitemap has none.

/// What a sitemap holds.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Sitemap {
    /// Pages.
    pub pages: Vec<String>,
    /// Sitemaps, where it is an index of such.
    pub sitemaps: Vec<String>,
}

/// Reads one.
pub fn read(text: &str) -> Sitemap {
    let mut found = Sitemap::default();
    let is_index = text.contains("<sitemapindex");
    let mut rest = text;
    while let Some(begin) = rest.find("<loc>") {
        let behind = &rest[begin + "<loc>".len()..];
        let Some(end) = behind.find("</loc>") else { break };
        let url = plain(behind[..end].trim());
        if is_index { &mut found.sitemaps } else { &mut found.pages }.push(url);
        rest = &behind[end..];
    }
    found
}

/// Text without the entities that XML has of itself, or as `CDATA` has it.
fn plain(text: &str) -> String {
    if let Some(inside) = text.strip_prefix("<![CDATA[").and_then(|text| text.strip_suffix("]]>")) {
        return inside.trim().to_owned();
    }
    let names =
        [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&#38;", "&"), ("&amp;", "&")];
    names.iter().fold(text.to_owned(), |text, (entity, stands_for)| text.replace(entity, stands_for))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sitemaps() {
        let of = |pages: &[&str], sitemaps: &[&str]| Sitemap {
            pages: pages.iter().map(|url| (*url).to_owned()).collect(),
            sitemaps: sitemaps.iter().map(|url| (*url).to_owned()).collect(),
        };
        for (text, expected) in [
            (
                "<?xml version=\"1.0\"?><urlset><url><loc> https://a/?x=1&amp;y=2 </loc></url>\n<url><loc><![CDATA[https://a/b]]></loc></url></urlset>",
                of(&["https://a/?x=1&y=2", "https://a/b"], &[]),
            ),
            (
                "<sitemapindex><sitemap><loc>https://a/1.xml</loc></sitemap></sitemapindex>",
                of(&[], &["https://a/1.xml"]),
            ),
            ("<urlset><url><loc>https://a/</url>", of(&[], &[])),
            ("<loc></loc>", of(&[""], &[])),
            ("<html>", of(&[], &[])),
            ("&amp;lt;<loc>&amp;lt;</loc>", of(&["&lt;"], &[])),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
    }
}
