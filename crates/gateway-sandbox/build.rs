//! Says whether the target's kernel can confine processes: the cfg `can_confine`.
//!
//! `ALLTERNIT_TARGET_WITHOUT_CONFINEMENT` builds for Linux what every other target gets, so that
//! a Linux machine can check it. Such a build confines nothing, and so it starts nothing.
#![expect(clippy::disallowed_methods, reason = "cargo talks to a build script by its environment")]

fn main() {
    const WITHOUT: &str = "ALLTERNIT_TARGET_WITHOUT_CONFINEMENT";
    println!("cargo::rerun-if-env-changed={WITHOUT}");
    println!("cargo::rustc-check-cfg=cfg(can_confine)");
    let is_linux = std::env::var_os("CARGO_CFG_TARGET_OS").is_some_and(|os| os == "linux");
    if is_linux && std::env::var_os(WITHOUT).is_none() {
        println!("cargo::rustc-cfg=can_confine");
    }
}
