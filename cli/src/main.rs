//! `deedbook`: see the library of this crate.

fn main() -> std::process::ExitCode {
    deedbook_cli::main()
}
