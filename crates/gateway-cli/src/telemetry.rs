//! Logging of the running gateway: to standard error, never inputs or outputs of calls.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

use crate::config::{Log, LogForm};

/// Says whether a text is a level or a list of `target=level`.
///
/// A bare word is a level: the filter's own syntax would take a mistyped one for a target.
pub(crate) fn is_filter(text: &str) -> bool {
    let words_are_levels =
        text.split(',').filter(|directive| !directive.contains('=')).all(|directive| {
            directive.trim().parse::<LevelFilter>().is_ok() && !directive.trim().is_empty()
        });
    words_are_levels && EnvFilter::builder().parse(text).is_ok()
}

/// Starts logging for this process.
///
/// # Errors
/// Returns why logging cannot be started, such as a second start.
pub(crate) fn start(log: &Log, is_interactive: bool) -> anyhow::Result<()> {
    let filter = EnvFilter::builder().parse(&log.level)?;
    let format = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let started = match log.form {
        LogForm::Text => format.with_ansi(is_interactive).with_target(false).try_init(),
        LogForm::Json => format.json().flatten_event(true).try_init(),
    };
    started.map_err(|error| anyhow::anyhow!("start logging: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, is_valid: bool) {
        assert_eq!(is_filter(text), is_valid, "{text:?}");
    }

    #[test]
    fn a_filter_is_a_level_or_a_list_of_targets() {
        for text in ["off", "info", "debug,hyper=warn", "warn,gateway_engine=trace"] {
            check(text, true);
        }
        for text in ["", "inof", "info,", "gateway_engine", "gateway_engine=loud"] {
            check(text, false);
        }
    }
}
