//! A random tree of files. The content of each follows from its path.

use std::fs;
use std::io;
use std::path::Path;

use super::content::{self, Nonce};
use super::generator::Generator;

/// The files of a site.
#[derive(Debug, Clone)]
pub(super) struct Tree {
    /// Path below the site's folder, and length.
    files: Vec<(String, u64)>,
    folder: String,
}

impl Tree {
    pub(super) fn generate(random: &mut Generator, folder: &str) -> Tree {
        let mut files =
            vec![("f0.txt".to_owned(), 1000 + random.size(4000)), ("big.bin".to_owned(), 6 << 20)];
        for number in 1..random.between(3, 12) {
            let ending = random.pick(&["txt", "html", "bin", "css"]);
            files.push((format!("f{number}.{ending}"), random.size(1 << 20)));
        }
        for number in 0..random.between(1, 4) {
            let folder = format!("d{number}");
            if random.chance(60) {
                let name = random.pick(&["index.html", "home.htm"]);
                files.push((format!("{folder}/{name}"), random.size(20_000)));
            }
            files.push((format!("{folder}/page.html"), random.size(20_000)));
            files.push((format!("{folder}/with space.txt"), random.size(20_000)));
        }
        files.push((".secret".to_owned(), 100));
        files.push((".well-known/known.txt".to_owned(), 200));
        Tree { files, folder: folder.to_owned() }
    }

    /// Writes all of it below the folder of the run.
    pub(super) fn write(&self, run: &Path) -> io::Result<()> {
        for (name, length) in &self.files {
            let path = run.join(&self.folder).join(name);
            if let Some(parent) = path.parent() {
                fs::create_dir_all(parent)?;
            }
            fs::write(path, content::content(self.nonce(name), *length))?;
        }
        Ok(())
    }

    fn nonce(&self, name: &str) -> Nonce {
        Nonce::of_file(&format!("{}/{name}", self.folder))
    }

    /// The content of the file with this path below the folder of the run, if there is such a file.
    pub(super) fn find(&self, path: &str) -> Option<(Nonce, u64)> {
        let name = path.strip_prefix(&self.folder)?.strip_prefix('/')?;
        let (name, length) = self.files.iter().find(|(of, _)| of == name)?;
        Some((self.nonce(name), *length))
    }

    /// Paths to ask for: of files, folders, and what is not there.
    pub(super) fn paths(&self, random: &mut Generator) -> Vec<String> {
        let mut paths: Vec<String> =
            self.files.iter().map(|(name, _)| format!("/{}", name.replace(' ', "%20"))).collect();
        paths.extend(["/", "/d0", "/d0/", "/d1/", "/missing", "/d0/missing"].map(str::to_owned));
        if random.chance(50) {
            paths.extend(
                ["/d0/../f0.txt", "//f0.txt", "/%66%30.txt", "/f0.txt/", "/d0/%2e%2e/f0.txt"]
                    .map(str::to_owned),
            );
        }
        paths
    }
}
