//! `approvals`: what waits for a person's answer, and the answer.

use std::collections::BTreeSet;
use std::time::Duration;

use hyper::{Method, StatusCode};
use serde_json::{Value, json};

use super::{As, Invocation, refused};
use crate::cli::{AnswerArguments, ApprovalsVerb};
use crate::client::segment;
use crate::exit::{Exit, Failure, Outcome};
use crate::table::{Table, printable};

/// Approvals of one page.
const PAGE: u32 = 100;
/// How often `watch` looks.
const LOOK: Duration = Duration::from_secs(1);

pub(super) fn run(invocation: &mut Invocation, verb: &ApprovalsVerb) -> Outcome {
    match verb {
        ApprovalsVerb::List { state } => list(invocation, state),
        ApprovalsVerb::Show { id } => show(invocation, id),
        ApprovalsVerb::Watch => watch(invocation),
        ApprovalsVerb::Approve(arguments) => answer(invocation, arguments, "approve"),
        ApprovalsVerb::Deny(arguments) => answer(invocation, arguments, "deny"),
        ApprovalsVerb::Revoke { id } => {
            let revoked = ask(invocation, Method::DELETE, path_of(id), None)?;
            print_state(invocation, &revoked)
        }
    }
}

fn list(invocation: &mut Invocation, state: &str) -> Outcome {
    let approvals = read_all(invocation, state)?;
    if invocation.is_json() {
        invocation.terminal.json(&Value::Array(approvals))?;
        return Ok(Exit::Success);
    }
    let mut table = Table::new(&["ASKED", "UNTIL", "TOOL", "RUN", "BY", "RULE", "APPROVAL"]);
    for approval in &approvals {
        let places = [
            "/asked_at",
            "/expires_at",
            "/tool/id",
            "/run_id",
            "/principal",
            "/rule",
            "/approval_id",
        ];
        table.row(places.map(|place| text(approval, place).to_owned()));
    }
    invocation.terminal.raw(table.to_text().as_bytes())?;
    Ok(Exit::Success)
}

fn show(invocation: &mut Invocation, id: &str) -> Outcome {
    let approval = ask(invocation, Method::GET, path_of(id), None)?;
    if invocation.is_json() {
        invocation.terminal.json(&approval)?;
    } else {
        invocation.terminal.raw(described(&approval).as_bytes())?;
    }
    Ok(Exit::Success)
}

/// Prints each pending approval once; ends when the gateway no longer answers.
fn watch(invocation: &mut Invocation) -> Outcome {
    let mut seen = BTreeSet::new();
    loop {
        let pending = read_all(invocation, "pending")?;
        let ids: BTreeSet<String> =
            pending.iter().map(|approval| text(approval, "/approval_id").to_owned()).collect();
        for id in ids.difference(&seen) {
            let approval = ask(invocation, Method::GET, path_of(id), None)?;
            if invocation.is_json() {
                invocation.terminal.line(&approval.to_string())?;
            } else {
                let program = &invocation.program;
                let advice = format!("  answer     {program} approvals approve {id}\n\n");
                invocation.terminal.raw((described(&approval) + &advice).as_bytes())?;
            }
        }
        // What no longer waits is forgotten, so that the set stays as small as what does.
        seen = ids;
        #[expect(clippy::disallowed_methods, reason = "a verb has no runtime that it could block")]
        std::thread::sleep(LOOK);
    }
}

fn answer(invocation: &mut Invocation, arguments: &AnswerArguments, decision: &str) -> Outcome {
    let body = json!({ "decision": decision, "reason": arguments.reason });
    let answered = ask(invocation, Method::POST, path_of(&arguments.id), Some(&body))?;
    print_state(invocation, &answered)
}

fn print_state(invocation: &mut Invocation, approval: &Value) -> Outcome {
    if invocation.is_json() {
        invocation.terminal.json(approval)?;
    } else {
        let (id, state) = (text(approval, "/approval_id"), text(approval, "/state"));
        let tool = text(approval, "/tool/id");
        invocation.terminal.line(&printable(&format!("{state}: {tool} ({id})")))?;
    }
    Ok(Exit::Success)
}

/// Returns the approvals of every page.
fn read_all(invocation: &Invocation, state: &str) -> Result<Vec<Value>, Failure> {
    let mut approvals = Vec::new();
    let mut after = 0;
    loop {
        let path = format!("/v1/approvals?state={state}&limit={PAGE}&after={after}");
        let mut page = ask(invocation, Method::GET, path, None)?;
        if let Some(Value::Array(listed)) = page.get_mut("approvals").map(Value::take) {
            approvals.extend(listed);
        }
        match page.get("next_after").and_then(Value::as_u64) {
            // A page that leads back would be read for ever.
            Some(next) if next > after => after = next,
            Some(_) | None => return Ok(approvals),
        }
    }
}

fn ask(
    invocation: &Invocation,
    method: Method,
    path: String,
    body: Option<&Value>,
) -> Result<Value, Failure> {
    let answer = invocation.ask(As::Operator, method, path, body)?;
    if answer.status != StatusCode::OK {
        return Err(refused(&answer));
    }
    answer.json().map_err(|error| Failure::of(Exit::Failed, error))
}

fn path_of(id: &str) -> String {
    format!("/v1/approvals/{}", segment(id))
}

fn text<'a>(approval: &'a Value, place: &str) -> &'a str {
    approval.pointer(place).and_then(Value::as_str).unwrap_or("-")
}

/// Returns an approval for a person: who wants to do what, exactly, and until when they may answer.
fn described(approval: &Value) -> String {
    let input = approval.get("input").map_or_else(String::new, |input| visible(&input.to_string()));
    let lines = [
        ("approval", text(approval, "/approval_id").to_owned()),
        ("state", text(approval, "/state").to_owned()),
        ("tool", format!("{} ({})", text(approval, "/tool/id"), text(approval, "/tool/tier"))),
        ("input", input),
        ("called by", text(approval, "/principal").to_owned()),
        ("run", text(approval, "/run_id").to_owned()),
        ("asked by", text(approval, "/rule").to_owned()),
        ("because", text(approval, "/reason").to_owned()),
        ("until", text(approval, "/expires_at").to_owned()),
    ];
    let lines = lines.iter().map(|(name, value)| format!("  {name:<10} {}\n", printable(value)));
    lines.collect()
}

/// Returns JSON text in which a person sees every character: those that could hide or reorder others
/// are JSON's own escapes.
fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        if character.is_ascii() || character.is_alphanumeric() {
            shown.push(character);
        } else {
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                shown.push_str(&format!("\\u{unit:04x}"));
            }
        }
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_is_shown_with_nothing_hidden() {
        let check = |text: &str, expected: &str| assert_eq!(visible(text), expected);
        check("{\"cmd\":\"rm -rf ä漢\"}", "{\"cmd\":\"rm -rf ä漢\"}");
        check("a\u{202e}b\u{200b}c\u{1f600}", "a\\u202eb\\u200bc\\ud83d\\ude00");
        let input = json!({"cmd": "a\u{202e}b\u{1f600}\n"});
        let back: Value = serde_json::from_str(&visible(&input.to_string())).unwrap();
        assert_eq!(back, input);
    }
}
