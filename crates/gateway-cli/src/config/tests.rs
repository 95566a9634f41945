//! How layers add up, and what is said about values that cannot be used.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use gateway_engine::Workspace;

use super::keys::Show;
use super::*;

/// A directory with a home in it, whose path reads `DIR` in what is compared.
struct Place {
    directory: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        for name in ["home", "project", "elsewhere/project", "dotted.name", "home/inside"] {
            fs::create_dir_all(directory.path().join(name)).unwrap();
        }
        Self { directory }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    #[expect(clippy::disallowed_methods, reason = "the test writes the file that a person would")]
    fn file(&self, text: &str) -> &Self {
        fs::write(self.path().join("home/config.toml"), text).unwrap();
        self
    }

    fn layers(&self, environment: &[(&'static str, &str)], flags: Flags) -> Layers {
        let home = ("ALLTERNIT_HOME", "home");
        let environment =
            environment.iter().chain([&home]).map(|(name, text)| (*name, (*text).to_owned()));
        Layers { flags, environment: environment.collect(), directory: self.path().to_owned() }
    }

    fn load(
        &self,
        environment: &[(&'static str, &str)],
        flags: Flags,
    ) -> Result<Config, ConfigError> {
        Config::load(&self.layers(environment, flags))
    }

    /// Returns a text in which this place's own path is not seen.
    fn anonymous(&self, text: &str) -> String {
        let real = self.path().canonicalize().unwrap();
        text.replace(&*real.to_string_lossy(), "DIR")
            .replace(&*self.path().to_string_lossy(), "DIR")
    }

    /// Returns what is said about a file.
    fn said_about(&self, file: &str) -> String {
        self.file(file);
        let error = self.load(&[], Flags::default()).unwrap_err();
        self.anonymous(&error.to_string())
    }
}

fn flag(name: &'static str, value: &str) -> Flags {
    Flags { values: BTreeMap::from([(name, value.to_owned())]), ..Flags::default() }
}

fn workspaces(directories: &[&str]) -> Flags {
    let workspaces = directories.iter().map(|directory| (*directory).to_owned()).collect();
    Flags { workspaces, ..Flags::default() }
}

#[test]
fn a_later_layer_wins_and_each_value_knows_its_layer() {
    let place = Place::new();
    let source = |config: &Config| place.anonymous(&config.source("port").to_string());
    let check = |environment: &[(&'static str, &str)], flags: Flags, port: u16, from: &str| {
        let config = place.load(environment, flags).unwrap();
        assert_eq!((config.port, source(&config).as_str()), (port, from));
    };
    check(&[], Flags::default(), 3510, "default");
    place.file("\nport = 4001\n");
    check(&[], Flags::default(), 4001, "DIR/home/config.toml:2");
    let environment = [("ALLTERNIT_IO_SERVICE_PORT", "4002")];
    check(&environment, Flags::default(), 4002, "environment ALLTERNIT_IO_SERVICE_PORT");
    check(&environment, flag("--port", "4003"), 4003, "flag --port");
}

#[test]
fn every_key_of_the_file_is_set_and_shown_with_its_line() {
    let place = Place::new();
    place.file(
        r#"
        host = "::1"
        port = 0x1000
        allow_remote = true
        [log]
        level = "warn,gateway_engine=debug"
        format = "json"
        [sandbox]
        mode = "off"
        readable = ["/opt/tools", "beside"]
        [workspaces.main]
        path = "../project"
        [workspaces.docs]
        path = "/srv/docs"
        mode = "ro"
        [http]
        allowed_hosts = ["gateway.internal"]
        allowed_origins = ["https://example.org"]
        [egress]
        allow_private = ["127.0.0.1:8080", "fd00::/8"]
        ca_file = "authorities.pem"
        [limits]
        grace_seconds = 3
        key_retention_days = 30
        [tools]
        search_path = ["/usr/bin"]
        "#,
    );
    let config =
        place.load(&[("ALLTERNIT_LOG_FORMAT", "text")], flag("--sandbox", "enforce")).unwrap();
    let mut text = String::new();
    for shown in config.shown() {
        writeln!(text, "{} = {}  # {}", shown.name, shown.value_text(), shown.source).unwrap();
    }
    insta::assert_snapshot!("every_key", place.anonymous(&text));
}

#[test]
fn what_is_wrong_in_the_file_is_named_with_line_key_and_remedy() {
    let place = Place::new();
    let files = [
        "prot = 3510",
        "port = \"3510\"",
        "\n\nport = 65536",
        "port = -1",
        "port = 1.5",
        "host = \"example.org\"",
        "home = \"/elsewhere\"",
        "[log]\nlevel = \"inof\"",
        "[log]\nformt = \"json\"",
        "log = \"debug\"",
        "[sandbox]\nmode = \"maybe\"",
        "[sandbox]\nreadable = \"/opt\"",
        "[sandbox]\nreadable = [1]",
        "[sandbox]\nreadable = [\"\"]",
        "[sandbox]\nreadable = [\"~/tools\"]",
        "[egress]\nallow_private = [\"localhost:8080\"]",
        "[limits]\ngrace_seconds = 3601",
        "[limits]\ngrace = 1",
        "[workspaces.docs]\npth = \"/srv\"",
        "[workspace.docs]\npath = \"/srv\"",
        "[workspaces.\"a/b\"]\npath = \"/srv\"",
        "[workspaces.docs]\npath = \"/srv\"\nmode = \"rx\"",
        "[workspaces]\ndocs = \"/srv\"",
        "[nothing.like.it]\nat = \"all\"",
        "[empty]",
        "port = ",
        "port = 1\nport = 2",
        "port = 1\n[log\nlevel = 1",
        "port = [1]\nhost = true\n[log]\nlevel = 3",
    ];
    let said: Vec<String> = files
        .iter()
        .map(|file| format!("{file}\n  → {}", place.said_about(file).replace('\n', "\n  → ")))
        .collect();
    insta::assert_snapshot!("faults_of_a_file", said.join("\n"));
}

#[test]
fn what_is_wrong_elsewhere_is_named_with_the_variable_or_the_flag() {
    let place = Place::new();
    let check = |environment: &[(&'static str, &str)], flags: Flags, exit: Exit, expected: &str| {
        let error = place.load(environment, flags).unwrap_err();
        assert_eq!(place.anonymous(&error.to_string()), expected);
        assert_eq!(Failure::from(error).exit, exit);
    };
    let port = ("ALLTERNIT_IO_SERVICE_PORT", "x");
    let about_port = "port: expected an integer from 0 to 65535, got \"x\"";
    check(
        &[port],
        Flags::default(),
        Exit::Startup,
        &format!("ALLTERNIT_IO_SERVICE_PORT: {about_port}"),
    );
    check(&[], flag("--port", "x"), Exit::Usage, &format!("--port: {about_port}"));
    check(
        &[],
        Flags { file: Some("none.toml".into()), ..Flags::default() },
        Exit::Usage,
        "--config: DIR/none.toml: cannot be read: No such file or directory (os error 2)",
    );
    let nowhere = Layers { environment: BTreeMap::new(), ..place.layers(&[], Flags::default()) };
    let message = Config::load(&nowhere).unwrap_err().to_string();
    assert!(message.starts_with("home: HOME is not set"), "{message}");
}

#[test]
fn the_home_is_where_flag_environment_or_the_users_home_say() {
    let place = Place::new();
    let check = |environment: &[(&'static str, &str)], flags: Flags, expected: &str| {
        let environment =
            environment.iter().map(|(name, text)| (*name, (*text).to_owned())).collect();
        let layers = Layers { environment, ..place.layers(&[], flags) };
        assert_eq!(Config::load(&layers).unwrap().home, place.path().join(expected));
    };
    check(&[("HOME", "/home/ada")], Flags::default(), "/home/ada/.allternit");
    check(&[("HOME", "/home/ada"), ("ALLTERNIT_HOME", "/srv/h")], Flags::default(), "/srv/h");
    check(&[("ALLTERNIT_HOME", "/srv/h")], flag("--home", "relative"), "relative");
}

#[test]
fn a_workspace_flag_names_a_directory_and_its_mode() {
    let place = Place::new();
    let check = |text: &str, expected: Result<(&str, &str, &str), &str>| {
        let granted =
            place.load(&[], workspaces(&[text])).and_then(|config| config.granted_workspaces());
        let granted = granted.map(|granted| {
            let [Workspace { name, host, is_writable }] = granted.try_into().unwrap();
            let mode = if is_writable { "rw" } else { "ro" };
            (name.to_string(), place.anonymous(&host.to_string_lossy()), mode.to_owned())
        });
        let granted = granted.map_err(|error| place.anonymous(&error.to_string()));
        let expected =
            expected.map(|(name, host, mode)| (name.to_owned(), host.to_owned(), mode.to_owned()));
        assert_eq!(granted, expected.map_err(ToOwned::to_owned), "{text:?}");
    };
    check("project", Ok(("project", "DIR/project", "rw")));
    check("project:ro", Ok(("project", "DIR/project", "ro")));
    check("./elsewhere/../project/:rw", Ok(("project", "DIR/project", "rw")));
    check("dotted.name", Ok(("dotted-name", "DIR/dotted.name", "rw")));
    check(":ro", Err("--workspace: \":ro\": expected DIR, DIR:ro or DIR:rw"));
    check(
        "none",
        Err("--workspace: DIR/none: cannot be used: No such file or directory (os error 2)"),
    );
    let shares = "and the gateway's home DIR/home share files; a tool must never reach the home: grant \
                  a directory beside it, or move the home with --home";
    check("home", Err(&format!("--workspace: workspaces.home.path: DIR/home {shares}")));
    check(
        "home/inside",
        Err(&format!("--workspace: workspaces.inside.path: DIR/home/inside {shares}")),
    );
    check(
        "/",
        Err(
            "--workspace: /: no workspace name can be made of it; name it in the configuration file: [workspaces.NAME] path = \"…\"",
        ),
    );
}

#[test]
fn workspaces_that_collide_or_overlap_are_refused_with_both_names() {
    let place = Place::new();
    let said = |directories: &[&str]| {
        let error = place
            .load(&[], workspaces(directories))
            .and_then(|config| config.granted_workspaces())
            .unwrap_err();
        place.anonymous(&error.to_string())
    };
    assert_eq!(
        said(&["project", "elsewhere/project"]),
        "--workspace: DIR/project and DIR/elsewhere/project would both be /workspace/project; name \
         one of them in the configuration file: [workspaces.OTHER] path = \"…\""
    );
    assert_eq!(
        said(&["elsewhere", "elsewhere/project:ro"]),
        "--workspace: workspaces.project.path: DIR/elsewhere/project and DIR/elsewhere of workspace \
         elsewhere share files; grant one of them"
    );
}

#[test]
fn a_workspace_of_a_flag_replaces_the_files_of_that_name() {
    let place = Place::new();
    place.file("[workspaces.project]\npath = \"../elsewhere\"\nmode = \"ro\"\n");
    let config = place.load(&[], workspaces(&["project"])).unwrap();
    let [Workspace { host, is_writable, .. }] =
        config.granted_workspaces().unwrap().try_into().unwrap();
    assert_eq!(
        (place.anonymous(&host.to_string_lossy()).as_str(), is_writable),
        ("DIR/project", true)
    );
}

#[test]
fn a_workspace_without_a_path_is_refused_where_it_is_named() {
    let place = Place::new();
    place.file("[workspaces.docs]\nmode = \"ro\"\n");
    let error = place.load(&[], Flags::default()).unwrap().granted_workspaces().unwrap_err();
    let said = place.anonymous(&error.to_string());
    assert_eq!(said, "DIR/home/config.toml:2: workspaces.docs.path: is required");
}

#[test]
fn an_address_that_others_reach_needs_a_word() {
    let place = Place::new();
    let check = |host: &str, is_allowed: bool| {
        let config = place.load(&[], flag("--host", host)).unwrap();
        assert_eq!(config.check_reach().is_ok(), is_allowed, "{host}");
    };
    for host in ["127.0.0.1", "127.1.2.3", "::1", "localhost"] {
        check(host, true);
    }
    for host in ["0.0.0.0", "::", "192.168.1.2"] {
        check(host, false);
    }
    place.file("allow_remote = true");
    check("0.0.0.0", true);
}

#[test]
fn keys_are_unique_and_those_of_sections_lie_together() {
    for (position, key) in KEYS.iter().enumerate() {
        let same = KEYS.iter().skip(position + 1).filter(|other| other.name == key.name);
        assert_eq!(same.count(), 0, "{}", key.name);
    }
}

/// Returns the table of keys as the documentation holds it.
fn keys_as_markdown() -> String {
    let defaults = Config::of_defaults(PathBuf::from("~/.allternit"));
    let code = |name: Option<&str>| name.map_or_else(String::new, |name| format!("`{name}`"));
    let mut text =
        "| key | value | default | environment | flag | for |\n|---|---|---|---|---|---|\n"
            .to_owned();
    for Key { name, expected, environment, flag, doc, set: _, show } in KEYS {
        let default = match show {
            Show::One(show) => show(&defaults),
            Show::EachWorkspace(show) => show(&WorkspaceSetting::unset()),
        };
        let default = if default.is_null() { String::new() } else { format!("`{default}`") };
        let (environment, flag) = (code(*environment), code(*flag));
        writeln!(text, "| `{name}` | {expected} | {default} | {environment} | {flag} | {doc} |")
            .unwrap();
    }
    text
}

#[test]
fn the_documentation_holds_the_table_of_keys() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/config.md");
    let page = fs::read_to_string(page).unwrap();
    let table = keys_as_markdown();
    assert!(page.contains(&table), "docs/config.md should hold:\n{table}");
}
