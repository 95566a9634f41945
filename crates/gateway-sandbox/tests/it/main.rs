//! Drives real programs through the sandbox, as the current user and, where that is root, as an
//! ordinary user too. This program is its own sandbox helper, so it has no test harness.
#![expect(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "test code")]
#![expect(clippy::indexing_slicing, reason = "a wrong index fails the test")]

mod attacks;
mod directories;
mod harness;
mod limits;
mod network;
mod off;
mod place;
mod programs;
mod stops;
mod workloads;

use std::process::ExitCode;

use harness::Case;

const FAMILIES: &[&[Case]] = &[
    attacks::CASES,
    directories::CASES,
    limits::CASES,
    network::CASES,
    off::CASES,
    programs::CASES,
    stops::CASES,
    workloads::CASES,
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.first().map(String::as_str) {
        Some(gateway_sandbox::HELPER_ARGUMENT) => gateway_sandbox::helper_main(),
        Some(programs::RUN_TRUE) => programs::run_true(),
        Some(stops::RUN_FOREVER) => stops::run_forever(&args),
        Some(harness::ROUND) => harness::run_cases(FAMILIES, &args),
        _ => harness::run_rounds(&args),
    }
}
