//! An application behind the server, started by one of the settings files in `examples/apps`, and a visitor
//! of it: curl with its cookies.

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tidegate_testkit::InTime;

/// The server, with the application that its settings start.
pub struct Site {
    /// Room for cookies, sockets and what the application stores.
    pub folder: PathBuf,
    /// Where it listens: `http://127.0.0.1:PORT`.
    pub url: String,
    child: Child,
}

/// Whether every program is there; where one is missing the test says so, and fails under CI.
pub fn has(programs: &[&str]) -> bool {
    let is_there = |program: &&&str| {
        Command::new("sh")
            .args(["-c", "command -v \"$0\"", program])
            .stdout(Stdio::null())
            .status()
            .unwrap()
            .success()
            || Path::new(program).exists()
    };
    let missing: Vec<_> = programs.iter().filter(|program| !is_there(program)).collect();
    if !missing.is_empty() {
        assert!(std::env::var_os("CI").is_none(), "{missing:?} missing: cargo xtask tools");
        eprintln!("NOT TESTED: {missing:?} missing (cargo xtask tools)");
    }
    missing.is_empty()
}

/// An empty folder for one test, which applications may write into whoever they run as.
pub fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("tidegate-apps-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o1777)).unwrap();
    folder
}

/// A folder of the examples.
pub fn example(name: &str) -> PathBuf {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/apps");
    tidegate_testkit::reachable(&fs::canonicalize(examples).unwrap()).join(name)
}

impl Site {
    /// Serves by `examples/apps/CONFIG`, which takes its address from `LISTEN` and may take more from
    /// `environment`.
    pub fn start(config: &str, folder: PathBuf, environment: &[(&str, &str)]) -> Site {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .arg("serve")
            .args([Path::new("--config"), &example(config), Path::new("--control"), &folder.join("control")])
            .env("LISTEN", "127.0.0.1:0")
            .env("RUN", &folder)
            .envs(environment.iter().copied())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
        let url = lines
            .by_ref()
            .inspect(|line| eprintln!("{line}"))
            .find_map(|line| line.strip_prefix("listening on ").map(str::to_owned));
        let url = url.unwrap_or_else(|| panic!("the server has not started with {config}"));
        std::thread::spawn(move || lines.for_each(|line| eprintln!("{line}")));
        Site { folder, url, child }
    }

    /// Somebody with a browser.
    pub fn visitor(&self, name: &str) -> Visitor<'_> {
        Visitor { site: self, cookies: self.folder.join(format!("cookies-{name}")) }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // In order, so that the application is ended with it.
        let pid = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// curl, with cookies of its own.
pub struct Visitor<'a> {
    site: &'a Site,
    cookies: PathBuf,
}

/// What came back.
#[derive(Debug)]
pub struct Page {
    /// Status of the last answer.
    pub status: u16,
    /// Where it was, after redirects.
    pub url: String,
    /// Its content.
    pub text: String,
}

impl Visitor<'_> {
    /// Follows redirects, as a browser does.
    pub fn get(&self, path: &str) -> Page {
        self.curl(&["--location", &self.at(path)])
    }

    /// Sends a form, and follows where it leads.
    pub fn post(&self, path: &str, form: &[(&str, &str)]) -> Page {
        let mut arguments = vec!["--location".to_owned()];
        for (name, value) in form {
            arguments.extend(["--data-urlencode".to_owned(), format!("{name}={value}")]);
        }
        arguments.push(self.at(path));
        self.curl(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Sends a form with files: each part as curl's `--form` takes it.
    pub fn upload(&self, path: &str, parts: &[&str]) -> Page {
        let mut arguments = vec!["--location"];
        for part in parts {
            arguments.extend(["--form", part]);
        }
        let url = self.at(path);
        arguments.push(&url);
        self.curl(&arguments)
    }

    /// Runs curl with these arguments; what it could not do fails the test.
    pub fn curl(&self, arguments: &[&str]) -> Page {
        let output = Command::new("curl")
            .args([
                "--silent",
                "--show-error",
                "--max-time",
                "60",
                "--write-out",
                "\n%{http_code} %{url_effective}",
            ])
            .args([Path::new("--cookie"), &self.cookies, Path::new("--cookie-jar"), &self.cookies])
            .args(arguments)
            .output_in_time();
        assert!(output.status.success(), "curl {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let (text, last) = text.rsplit_once('\n').unwrap();
        let (status, url) = last.split_once(' ').unwrap();
        Page { status: status.parse().unwrap(), url: url.to_owned(), text: text.to_owned() }
    }

    fn at(&self, path: &str) -> String {
        if path.starts_with("http") { path.to_owned() } else { format!("{}{path}", self.site.url) }
    }
}

impl Page {
    /// Asserts that it was found and holds this text.
    #[track_caller]
    pub fn shows(self, text: &str) -> Page {
        assert_eq!(self.status, 200, "{self:#?}");
        assert!(self.text.contains(text), "no `{text}` in {self:#?}");
        self
    }

    /// The value of a hidden field of a form.
    #[track_caller]
    pub fn field(&self, name: &str) -> String {
        self.between(&format!("name=\"{name}\" value=\""), "\"")
            .or_else(|| self.between(&format!("name='{name}' value='"), "'"))
            .unwrap_or_else(|| panic!("no field {name} in {self:#?}"))
    }

    /// The text between two others.
    pub fn between(&self, before: &str, after: &str) -> Option<String> {
        let (_, rest) = self.text.split_once(before)?;
        rest.split_once(after).map(|(found, _)| found.to_owned())
    }
}
