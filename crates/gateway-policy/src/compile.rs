//! Turns policy texts into one validated rule set, or into every fault found in them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::thread;

use cedar_policy::{
    Effect as CedarEffect, Policy, PolicyId, PolicySet, ValidationError, ValidationMode,
    ValidationWarning, Validator,
};
use gateway_model::Effect;
use miette::Diagnostic;

use crate::lint;
use crate::problem::{LoadError, Problem};
use crate::reads::Reads;
use crate::rule::{Rule, RuleSummary};
use crate::rule_set::RuleSet;
use crate::shape::check_shape;
use crate::source::Source;
use crate::world::World;

/// The rules that come with the gateway, one file per concern.
const DEFAULTS: [(&str, &str); 3] = [
    ("defaults/execute.cedar", include_str!("../defaults/execute.cedar")),
    ("defaults/list.cedar", include_str!("../defaults/list.cedar")),
    ("defaults/register.cedar", include_str!("../defaults/register.cedar")),
];

/// How many rules an operator may add.
const MAX_RULES: usize = 2000;
/// How many of them may fit every tool; each costs time on every call.
const MAX_UNSCOPED_RULES: usize = 200;

const ATTRIBUTE_ADVICE: &str =
    "; what a rule may read depends on its action: name one, action == Allternit::Action::\"…\"";
/// The stack that compiling may use.
const STACK_BYTES: usize = 32 * 1024 * 1024;

/// What became of a set of policy texts.
pub(crate) struct Compilation {
    pub(crate) rule_set: Result<RuleSet, LoadError>,
    pub(crate) warnings: Vec<Problem>,
}

/// Compiles the operator's texts on top of the default rules.
///
/// Runs on a thread of its own: Cedar's parser and validator recurse, and need more stack for
/// what [`check_shape`] lets through than a caller's thread may have left.
pub(crate) fn compile(home: Vec<Source>) -> Compilation {
    let started = thread::Builder::new()
        .name("policy-compile".to_owned())
        .stack_size(STACK_BYTES)
        .spawn(|| compile_here(home));
    let outcome = match started {
        Ok(compiling) => compiling
            .join()
            .map_err(|_panic| "the policy compiler failed; please report the files".to_owned()),
        Err(error) => Err(format!("the policy compiler cannot start: {error}")),
    };
    outcome.unwrap_or_else(|fault| Compilation {
        rule_set: Err(LoadError::from(Problem::of_file("policies", fault))),
        warnings: Vec::new(),
    })
}

fn compile_here(home: Vec<Source>) -> Compilation {
    let world = match World::new() {
        Ok(world) => world,
        Err(error) => {
            return Compilation { rule_set: Err(error.into()), warnings: Vec::new() };
        }
    };
    let defaults = DEFAULTS.map(|(name, text)| Source {
        name: name.to_owned(),
        text: text.to_owned(),
        is_default: true,
    });
    let sources: Vec<Source> = defaults.into_iter().chain(home).collect();
    let mut compiler = Compiler::new(&world, &sources);
    for source in &sources {
        compiler.read(source);
    }
    compiler.check_counts();
    compiler.validate();
    let Compiler { rules, mut errors, mut warnings, .. } = compiler;
    errors.sort_by(by_place);
    warnings.sort_by(by_place);
    let rule_set = if errors.is_empty() {
        Ok(RuleSet::new(world, rules, &sources))
    } else {
        Err(LoadError { problems: errors })
    };
    Compilation { rule_set, warnings }
}

fn by_place(one: &Problem, other: &Problem) -> std::cmp::Ordering {
    (&one.file, one.line, &one.message).cmp(&(&other.file, other.line, &other.message))
}

struct Compiler<'a> {
    world: &'a World,
    texts: HashMap<&'a str, &'a str>,
    rules: Vec<Rule>,
    /// The file and line of each name.
    places: BTreeMap<String, (String, usize)>,
    errors: Vec<Problem>,
    warnings: Vec<Problem>,
}

impl<'a> Compiler<'a> {
    fn new(world: &'a World, sources: &'a [Source]) -> Self {
        let texts =
            sources.iter().map(|source| (source.name.as_str(), source.text.as_str())).collect();
        Self {
            world,
            texts,
            rules: Vec::new(),
            places: BTreeMap::new(),
            errors: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// Parses one text and checks each rule by itself.
    fn read(&mut self, source: &Source) {
        if let Err(problem) = check_shape(&source.name, &source.text) {
            self.errors.push(problem);
            return;
        }
        let set = match source.text.parse::<PolicySet>() {
            Ok(set) => set,
            Err(faults) => {
                for fault in faults.iter() {
                    self.errors.push(problem_at(&source.name, &source.text, fault));
                }
                return;
            }
        };
        for template in set.templates() {
            let line = line_of(&source.text, template.as_ref().loc().map(|place| place.start()));
            let message = "templates (?principal, ?resource) are not supported; name whom or what the rule is about";
            self.errors.push(Problem::of_line(&source.name, line, message));
        }
        let mut policies: Vec<(usize, &Policy)> = set
            .policies()
            .map(|policy| (policy.as_ref().loc().map_or(0, |place| place.start()), policy))
            .collect();
        policies.sort_by_key(|(start, _policy)| *start);
        for (start, policy) in policies {
            self.add(source, line_of(&source.text, Some(start)), policy);
        }
    }

    fn add(&mut self, source: &Source, line: usize, policy: &Policy) {
        let reads = match Reads::of(policy) {
            Ok(reads) => reads,
            Err(reason) => {
                let message = format!("the rule cannot be analysed: {reason}");
                self.errors.push(Problem::of_line(&source.name, line, message));
                return;
            }
        };
        let annotations: BTreeMap<String, String> =
            policy.annotations().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let mut faults = lint::faults_of_annotations(&annotations, policy.effect(), &reads);
        faults.extend(lint::fault_of_entities(policy, self.world));
        let id = self.name(source, line, annotations.get("id").map(String::as_str), &mut faults);
        self.errors
            .extend(faults.into_iter().map(|fault| Problem::of_line(&source.name, line, fault)));
        if !source.is_default
            && let Some(warning) = lint::warning_of_reach(policy, &reads, self.world)
        {
            self.warnings.push(Problem::of_line(&source.name, line, warning));
        }
        let effect = match policy.effect() {
            CedarEffect::Permit => Effect::Allow,
            CedarEffect::Forbid if annotations.contains_key("ask") => Effect::Ask,
            CedarEffect::Forbid => Effect::Deny,
        };
        self.rules.push(Rule {
            is_default: source.is_default,
            policy: policy.new_id(PolicyId::new(&id)),
            reads,
            summary: RuleSummary { id, file: source.name.clone(), line, effect, annotations },
        });
    }

    /// Returns the rule's name, or a placeholder where it has none that can be used.
    fn name(
        &mut self,
        source: &Source,
        line: usize,
        id: Option<&str>,
        faults: &mut Vec<String>,
    ) -> String {
        let placeholder = format!("{}:{line}:{}", source.name, self.rules.len());
        if let Some(fault) = lint::fault_of_id(id, source.is_default) {
            faults.push(fault);
            return placeholder;
        }
        let id = id.unwrap_or(&placeholder).to_owned();
        if let Some((file, line)) = self.places.get(&id) {
            faults.push(format!("@id(\"{id}\") is already the name of the rule at {file}:{line}"));
            return placeholder;
        }
        self.places.insert(id.clone(), (source.name.clone(), line));
        id
    }

    fn check_counts(&mut self) {
        let added = self.rules.iter().filter(|rule| !rule.is_default);
        let (mut count, mut unscoped_count) = (0, 0);
        for rule in added {
            count += 1;
            let is_unscoped = lint::is_unscoped(&rule.policy);
            unscoped_count += usize::from(is_unscoped);
            let message = if count == MAX_RULES + 1 {
                format!("this is rule number {count}; at most {MAX_RULES} may be added")
            } else if is_unscoped && unscoped_count == MAX_UNSCOPED_RULES + 1 {
                format!(
                    "this is rule number {unscoped_count} that names no tool in its scope, and each costs time on every call; at most {MAX_UNSCOPED_RULES} may; write resource == Allternit::Tool::\"…\""
                )
            } else {
                continue;
            };
            self.errors.push(Problem::of_line(&rule.summary.file, rule.summary.line, message));
        }
    }

    /// Holds all rules against the schema. A rule that can never match is a fault too.
    fn validate(&mut self) {
        let policies = self.rules.iter().map(|rule| rule.policy.clone());
        let set = match PolicySet::from_policies(policies) {
            Ok(set) => set,
            Err(error) => {
                self.errors.push(Problem::of_file("policies", error.to_string()));
                return;
            }
        };
        let result =
            Validator::new(self.world.schema.clone()).validate(&set, ValidationMode::Strict);
        let mut faulty = BTreeSet::new();
        for error in result.validation_errors() {
            faulty.insert(error.policy_id());
            let mut problem = self.problem_of_rule(error.policy_id(), error);
            let is_missing = matches!(error, ValidationError::UnsafeAttributeAccess(_));
            if is_missing && problem.message.contains("in context for") {
                problem.message.push_str(ATTRIBUTE_ADVICE);
            }
            self.errors.push(problem);
        }
        for warning in result.validation_warnings() {
            let problem = self.problem_of_rule(warning.policy_id(), warning);
            let is_fault = matches!(
                warning,
                ValidationWarning::ImpossiblePolicy(_)
                    | ValidationWarning::InvalidActionApplication(_)
            );
            if !is_fault {
                self.warnings.push(problem);
            } else if faulty.insert(warning.policy_id()) {
                self.errors.push(problem);
            }
        }
    }

    fn problem_of_rule(&self, id: &PolicyId, fault: &dyn Diagnostic) -> Problem {
        let rule = self.rules.iter().find(|rule| rule.policy.id() == id);
        let Some(rule) = rule else {
            return Problem::of_file("policies", message_of(fault));
        };
        let summary = &rule.summary;
        let text = self.texts.get(summary.file.as_str()).copied().unwrap_or_default();
        let mut problem = problem_at(&summary.file, text, fault);
        problem.line.get_or_insert(summary.line);
        problem.message = problem.message.replace(&format!("for policy `{id}`, "), "");
        problem
    }
}

fn problem_at(file: &str, text: &str, fault: &dyn Diagnostic) -> Problem {
    let start = fault.labels().and_then(|mut labels| labels.next()).map(|label| label.offset());
    Problem {
        file: file.to_owned(),
        line: start.map(|start| line_of(text, Some(start))),
        message: message_of(fault),
    }
}

/// Returns a diagnostic's message, what it says at its label, and its advice, as one line.
fn message_of(fault: &dyn Diagnostic) -> String {
    let label = fault.labels().and_then(|mut labels| labels.next());
    let label = label.as_ref().and_then(|label| label.label());
    let help = fault.help().map(|help| help.to_string());
    let mut message = one_line(fault);
    for part in [label.map(one_line), help.map(one_line)].into_iter().flatten() {
        message.push_str("; ");
        message.push_str(&part);
    }
    message
}

fn one_line(text: impl fmt::Display) -> String {
    text.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Returns the line, counted from 1, that an offset lies on.
fn line_of(text: &str, offset: Option<usize>) -> usize {
    let offset = offset.unwrap_or_default();
    1 + text.bytes().take(offset).filter(|byte| *byte == b'\n').count()
}
