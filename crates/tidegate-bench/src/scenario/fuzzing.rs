//! What the fuzz targets call. Not part of the interface: a failed claim panics here, which nothing else in the crate may do.

use super::cookies::{Asked, Cookies};
use super::page::{self, head, resolve};
use super::{Expect, Pick, Selector, Step, Take, TakeFrom, estimate, load_text};
use crate::target::Url;
use std::collections::BTreeMap;
use std::path::Path;
use tidegate_wire::h1::begin_request;

/// A file is a scenario or says why it is none; what a scenario comes to are numbers.
pub fn fuzz_scenario(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let environment = BTreeMap::from([("HOME".to_owned(), "/root".to_owned())]);
    // A folder in which there is nothing: tables of files are not read.
    let loaded = load_text("fuzz.kdl", &text, Path::new("/nonexistent/scenarios"), &environment);
    let has_errors = loaded.diagnostics.iter().any(|found| found.is_error());
    assert_eq!(loaded.scenario.is_none(), has_errors, "what is not run is explained");
    assert_eq!(loaded.render(false).is_empty(), loaded.diagnostics.is_empty());
    let Some(scenario) = loaded.scenario else { return };
    let coming = estimate(&scenario, 2);
    let whole: f64 = coming.shares.iter().sum();
    assert!((whole - 1.0).abs() < 1e-6, "the shares are {:?}", coming.shares);
    assert!(coming.rate.is_finite() && coming.memory.is_finite());
    assert!(!coming.screen(&scenario).is_empty());
}

/// A page is read for values, resources and cookies; whatever it holds, no request that follows has a line more.
///
/// The input: a line with a selector, one with the path of the page, one with a `Location`, then the answer.
pub fn fuzz_page(data: &[u8]) {
    let mut lines = data.splitn(4, |byte| *byte == b'\n');
    let mut line = || lines.next().unwrap_or_default();
    let (selector, path, location) = (line(), line(), line());
    let answer = lines.next().unwrap_or_default();
    let at = memchr::memmem::find(answer, b"\r\n\r\n").map_or(0, |at| at + 4);
    let (answer_head, body) = answer.split_at(at);
    let target = Url::parse("http://shop.test:8080/").expect("invariant: this is a URL");
    let Some(path) = resolve(&target, "/", path) else { return };

    let take = |from| Take { variable: 1, from, written: String::new(), pick: Pick::Last, is_optional: true };
    let mut takes = vec![take(TakeFrom::Json("/a/0".into())), take(TakeFrom::Header("location".into()))];
    if let Ok(selector) = Selector::parse(&String::from_utf8_lossy(selector)) {
        takes.push(take(TakeFrom::Css(selector.clone(), "href".into())));
        takes.push(take(TakeFrom::Css(selector, "text".into())));
    }
    let step = Step {
        method: "GET".into(),
        path: Default::default(),
        fields: Vec::new(),
        body: Default::default(),
        expect: Expect::default(),
        calls: Default::default(),
        takes,
        counts: Vec::new(),
        assets: true,
        is_cached: false,
        min_speed: None,
    };
    let found = page::read(&step, &target, &path, answer_head, body, &mut |count| count.saturating_sub(1));
    assert!(found.missing.is_none(), "all of it is optional");

    let head = head(answer_head, "GET");
    let mut cookies = Cookies::default();
    let asked = Asked { site: &target, path: &path, now: 0 };
    head.cookies.iter().for_each(|cookie| cookies.set(cookie, asked));
    let redirected = resolve(&target, &path, location).into_iter();
    for path in found.assets.iter().cloned().chain(redirected) {
        assert!(path.starts_with('/'), "{path} is no path");
        let mut out = Vec::new();
        let begun = begin_request(&mut out, "GET", &path, &target.authority);
        begun.unwrap_or_else(|fault| panic!("{path:?}: {fault}"));
        assert_eq!(lines_of(&out), 2, "{path:?}");
        out.clear();
        cookies.write(&mut out, Asked { path: &path, ..asked });
        out.extend_from_slice(head.validator.as_deref().unwrap_or_default());
        assert!(lines_of(&out) <= 2, "{:?}", out.escape_ascii().to_string());
    }
}

fn lines_of(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| matches!(byte, b'\n')).count()
}

#[cfg(test)]
mod tests {
    /// What the fuzzers begin with holds what they claim.
    #[test]
    fn the_corpora() {
        let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
        for (folder, claim) in [
            ("scenario", super::fuzz_scenario as fn(&[u8])),
            ("scenario_page", super::fuzz_page as fn(&[u8])),
        ] {
            let files: Vec<_> = std::fs::read_dir(corpus.join(folder)).unwrap().collect();
            assert!(files.len() >= 3, "{folder}");
            for file in files {
                claim(&std::fs::read(file.unwrap().path()).unwrap());
            }
        }
    }
}
