//! What the command line accepts, and the help that it prints.

use clap::CommandFactory;

use super::*;

fn parse(line: &str) -> Result<CommandLine, clap::Error> {
    CommandLine::try_parse_from(std::iter::once("atg").chain(line.split_whitespace()))
}

#[test]
fn the_command_line_is_consistent() {
    CommandLine::command().debug_assert();
}

#[test]
fn settings_may_stand_before_and_after_the_verb() {
    for line in [
        "--port 4000 --workspace a --workspace b:ro serve",
        "serve --port 4000 --workspace a --workspace b:ro",
    ] {
        let parsed = parse(line).unwrap();
        let flags = parsed.settings.to_layer();
        assert_eq!(flags.values.get("--port").map(String::as_str), Some("4000"), "{line}");
        assert_eq!(flags.workspaces, ["a", "b:ro"], "{line}");
        assert!(matches!(parsed.verb, Some(Verb::Serve)), "{line}");
    }
    let parsed = parse("--workspace . --sandbox off").unwrap();
    assert!(parsed.verb.is_none());
    assert_eq!(parsed.settings.of_start_only(), Some("--workspace"));
}

#[test]
fn a_call_has_an_empty_input_and_the_shells_own_run_where_nothing_is_said() {
    let Some(Verb::Call(call)) = parse("call time.now").unwrap().verb else { panic!("no call") };
    assert_eq!((call.input.as_str(), call.run.as_str(), call.wih.as_str()), ("{}", "cli", "cli"));
    assert_eq!(call.key, None);
    let line = "call bash @input.json --run r --wih w --key k -o json";
    let parsed = parse(line).unwrap();
    assert_eq!(parsed.output, OutputForm::Json);
    let Some(Verb::Call(call)) = parsed.verb else { panic!("no call") };
    assert_eq!((call.run.as_str(), call.wih.as_str(), call.key.as_deref()), ("r", "w", Some("k")));
}

#[test]
fn a_mistyped_line_is_a_usage_error() {
    for line in
        ["sreve", "call", "tools", "tools show", "-o xml config show", "--bogus", "completions tcl"]
    {
        assert_eq!(parse(line).unwrap_err().exit_code(), 2, "{line}");
    }
    for line in ["--help", "--version", "call --help", "help tools"] {
        assert_eq!(parse(line).unwrap_err().exit_code(), 0, "{line}");
    }
}

#[test]
fn the_help_names_verbs_settings_and_exit_codes() {
    // The width is that of the terminal the test runs in, but for this.
    let command = CommandLine::command().term_width(100);
    let help = |line: &str| {
        let words = std::iter::once("atg").chain(line.split_whitespace());
        command.clone().try_get_matches_from(words).unwrap_err().to_string()
    };
    insta::assert_snapshot!("help", help("-h"));
    insta::assert_snapshot!("help_of_call", help("call -h"));
    insta::assert_snapshot!("help_of_tools", help("tools -h"));
}

#[test]
fn the_documentation_holds_the_exit_codes_and_every_verb() {
    let page = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cli.md");
    let page = std::fs::read_to_string(page).unwrap();
    for exit in exit::Exit::ALL {
        let row = format!("| {} | {} |", exit.code(), exit.meaning());
        assert!(page.contains(&row), "docs/cli.md should hold {row:?}");
    }
    let command = CommandLine::command();
    for verb in command.get_subcommands() {
        let inner: Vec<&str> = verb.get_subcommands().map(clap::Command::get_name).collect();
        let names = if inner.is_empty() { vec![""] } else { inner };
        for name in names {
            let written = format!("`atg {} {name}", verb.get_name());
            assert!(page.contains(written.trim_end()), "docs/cli.md should hold {written:?}");
        }
    }
}
