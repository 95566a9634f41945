//! The policy in force: loaded, asked, and replaced when an operator's files change.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use gateway_model::{Decision, Digest};

use crate::compile::compile;
use crate::problem::{LoadError, Problem};
use crate::request::PolicyRequest;
use crate::rule::RuleSummary;
use crate::rule_set::RuleSet;
use crate::source::{self, Listing};

/// How long a person may take to answer where no gate says.
const ANSWER_TIME: Duration = Duration::from_secs(15 * 60);

/// Where an operator's own rules lie.
#[derive(Debug, Clone)]
pub struct PolicyOptions {
    /// The directory of `*.cedar` files; without one only the default rules are in force.
    pub directory: Option<PathBuf>,
}

/// What a look at the policy files gave.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reload {
    /// Nothing changed since the last look.
    Unchanged,
    /// The files as they are now are in force.
    Activated {
        /// The digest of the set in force.
        digest: Digest,
        /// The files it was read from, besides the default rules.
        files: Vec<String>,
        /// What is legal in them and worth a look.
        warnings: Vec<Problem>,
    },
    /// The files changed and cannot be used; the set before stays in force.
    ///
    /// Answered once per change: the next look says [`Reload::Unchanged`].
    Rejected(LoadError),
}

/// The policy of a gateway.
///
/// INVARIANT: one complete, validated rule set is in force at any time.
#[derive(Debug)]
pub struct Policy {
    directory: Option<PathBuf>,
    current: ArcSwap<InForce>,
    last_look: Mutex<Look>,
}

#[derive(Debug)]
struct InForce {
    rule_set: RuleSet,
    epoch: u64,
    warnings: Vec<Problem>,
}

#[derive(Debug)]
struct Look {
    listing: Result<Listing, Problem>,
    was_rejected: bool,
}

impl Policy {
    /// Loads the default rules and, on top of them, the files of the directory.
    ///
    /// A directory that does not exist yet adds nothing.
    ///
    /// # Errors
    /// Returns every fault found in the files. None of them is then in force.
    pub fn load(options: PolicyOptions) -> Result<Self, LoadError> {
        let listing = match &options.directory {
            Some(directory) => source::list(directory)?,
            None => Listing::Absent,
        };
        let sources = match (&options.directory, &listing) {
            (Some(directory), Listing::Present(stamps)) => source::read_all(directory, stamps)?,
            (Some(_), Listing::Absent) | (None, _) => Vec::new(),
        };
        let compilation = compile(sources);
        let in_force =
            InForce { rule_set: compilation.rule_set?, epoch: 1, warnings: compilation.warnings };
        Ok(Self {
            directory: options.directory,
            current: ArcSwap::from_pointee(in_force),
            last_look: Mutex::new(Look { listing: Ok(listing), was_rejected: false }),
        })
    }

    /// Decides one request under the rules in force.
    pub fn decide(&self, request: &PolicyRequest<'_>) -> Arc<Decision> {
        self.current.load().rule_set.decide(request)
    }

    /// Returns how long a person may take to answer what a decision asks: the shortest `@ttl` of
    /// its gates, or 15 minutes.
    pub fn answer_time(&self, decision: &Decision) -> Duration {
        self.current.load().rule_set.answer_time(decision).unwrap_or(ANSWER_TIME)
    }

    /// Looks whether the files changed, and puts them in force if they can be.
    ///
    /// Costs one directory listing while nothing changed, and blocks on the file system: call it
    /// from a thread that may.
    pub fn reload_if_changed(&self) -> Reload {
        let Some(directory) = &self.directory else { return Reload::Unchanged };
        let mut last_look = self.last_look.lock().unwrap_or_else(PoisonError::into_inner);
        let listing = source::list(directory);
        if last_look.listing == listing {
            return Reload::Unchanged;
        }
        let sources = match &listing {
            Ok(Listing::Present(stamps)) => source::read_all(directory, stamps),
            // Rules that vanish with their directory must not silently stop to apply.
            Ok(Listing::Absent) => Err(LoadError::from(source::missing(directory))),
            Err(problem) => Err(LoadError::from(problem.clone())),
        };
        if listing != source::list(directory) {
            // The files are being written right now; the next look takes them as they are then.
            return Reload::Unchanged;
        }
        let was_rejected = last_look.was_rejected;
        let outcome = sources.and_then(|sources| {
            let files = sources.iter().map(|source| source.name.clone()).collect();
            let compilation = compile(sources);
            Ok((compilation.rule_set?, files, compilation.warnings))
        });
        *last_look = Look { listing, was_rejected: outcome.is_err() };
        match outcome {
            Ok((rule_set, files, warnings)) => {
                self.activate(rule_set, files, warnings, was_rejected)
            }
            Err(error) => Reload::Rejected(error),
        }
    }

    fn activate(
        &self,
        rule_set: RuleSet,
        files: Vec<String>,
        warnings: Vec<Problem>,
        was_rejected: bool,
    ) -> Reload {
        let digest = rule_set.digest();
        let current = self.current.load();
        if current.rule_set.digest() == digest {
            if !was_rejected {
                return Reload::Unchanged;
            }
        } else {
            let epoch = current.epoch + 1;
            self.current.store(Arc::new(InForce { rule_set, epoch, warnings: warnings.clone() }));
        }
        Reload::Activated { digest, files, warnings }
    }

    /// Returns the hash of the schema and the policy texts in force.
    pub fn digest(&self) -> Digest {
        self.current.load().rule_set.digest()
    }

    /// Counts the rule sets that were in force, from 1.
    pub fn epoch(&self) -> u64 {
        self.current.load().epoch
    }

    /// Returns every rule in force, the default ones first.
    pub fn rules(&self) -> Vec<RuleSummary> {
        self.current.load().rule_set.rules()
    }

    /// Returns what is legal in the files in force and worth a look.
    pub fn warnings(&self) -> Vec<Problem> {
        self.current.load().warnings.clone()
    }
}
