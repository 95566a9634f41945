//! The program under its full name.

fn main() -> std::process::ExitCode {
    gateway_cli::main()
}
