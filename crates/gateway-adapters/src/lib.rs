//! How a call is run: local commands, in-process executors, built-in tools.
