//! Every `console` block of the README, run as it stands.

use std::path::Path;
use std::process::Command;

use crate::gateway::{BINARY, Gateway};

/// A command of the documentation with the output it promises.
#[derive(Debug, Default)]
struct Example {
    command: String,
    output: Vec<String>,
}

/// Reads the `console` blocks: `$ ` starts a command, a final `\` or an open quote continues it.
fn examples(text: &str) -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    let mut is_inside = false;
    let mut continues = false;
    for line in text.lines() {
        match line {
            "```console" => is_inside = true,
            "```" => is_inside = false,
            _ if !is_inside => {}
            _ if continues || line.starts_with("$ ") => {
                if !continues {
                    examples.push(Example::default());
                }
                let example = examples.last_mut().unwrap();
                example
                    .command
                    .push_str(line.strip_prefix("$ ").filter(|_| !continues).unwrap_or(line));
                let is_quoted = example.command.matches('\'').count() % 2 == 1;
                continues = is_quoted || line.ends_with('\\');
                example.command.push('\n');
            }
            _ => examples.last_mut().unwrap().output.push(line.to_owned()),
        }
    }
    examples
}

/// Says whether a text is what a pattern promises; `…` stands for anything within the line.
fn matches(text: &str, pattern: &str) -> bool {
    let mut rest = text;
    let parts: Vec<&str> = pattern.split('…').collect();
    for (position, part) in parts.iter().enumerate() {
        let is_last = position + 1 == parts.len();
        let found = match (position, is_last) {
            (0, _) => rest.starts_with(part).then_some(0),
            (_, true) => rest.ends_with(part).then(|| rest.len() - part.len()),
            (_, false) => rest.find(part),
        };
        match found {
            Some(start) => rest = rest.get(start + part.len()..).unwrap(),
            None => return false,
        }
    }
    rest.is_empty() || pattern.ends_with('…')
}

/// A last line of `…` alone stands for any further lines.
fn check(example: &Example, printed: &str) {
    let printed: Vec<&str> = printed.lines().collect();
    let mut expected: Vec<&str> = example.output.iter().map(String::as_str).collect();
    let is_open = expected.last() == Some(&"…");
    if is_open {
        expected.pop();
    }
    let is_long_enough =
        printed.len() == expected.len() || (is_open && printed.len() >= expected.len());
    let is_same = printed.iter().zip(&expected).all(|(line, pattern)| matches(line, pattern));
    assert!(
        is_long_enough && is_same,
        "{}printed {printed:#?}, promised {expected:#?}",
        example.command
    );
}

#[test]
fn the_readme_shows_what_happens() {
    let directory = tempfile::tempdir().unwrap();
    let project = directory.path().join("project");
    std::fs::create_dir(&project).unwrap();
    std::fs::write(project.join("notes.txt"), "hello\n").unwrap();
    let git = Command::new("git").args(["init", "-q"]).current_dir(&project).status();
    assert!(git.unwrap().success());
    let home = directory.path().join("home");
    let gateway = Gateway::start_at(&home, &["--workspace", project.to_str().unwrap()], &[]);
    let programs = directory.path().join("bin");
    std::fs::create_dir(&programs).unwrap();
    std::os::unix::fs::symlink(Path::new(BINARY).with_file_name("atg"), programs.join("atg"))
        .unwrap();
    let readme = include_str!("../../../../README.md");
    let examples = examples(readme);
    assert!(examples.len() > 10, "{examples:?}");
    for example in examples {
        let line = example.command.replace("127.0.0.1:3510", &gateway.address.to_string());
        let output = Command::new("bash")
            .args(["-c", &line])
            .env_clear()
            .env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", programs.display()))
            .env("ALLTERNIT_HOME", &home)
            .current_dir(&project)
            .stdin(std::process::Stdio::null())
            .output()
            .unwrap();
        let mut printed = String::from_utf8(output.stdout).unwrap();
        printed.push_str(&String::from_utf8_lossy(&output.stderr));
        check(&example, &printed);
    }
}
