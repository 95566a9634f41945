//! The program under its short name.

fn main() -> std::process::ExitCode {
    gateway_cli::main()
}
