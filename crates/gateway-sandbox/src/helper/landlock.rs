//! A second layer under the mounts: reading and executing anywhere, writing only where granted.

use std::io;
use std::path::Path;

use landlock::{
    ABI, Access as _, AccessFs, CompatLevel, Compatible as _, PathBeneath, PathFd, Ruleset,
    RulesetAttr as _, RulesetCreated, RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope,
};

use super::failure::Failure;
use crate::spec::Spec;
use crate::sys::process;

const STAGE: &str = "restrict paths with Landlock";
/// The newest version whose rights are known here; what the kernel lacks of it is left out.
const NEWEST: ABI = ABI::V6;

/// Restricts this process; returns the version of Landlock that the kernel offers.
pub(super) fn restrict(spec: &Spec) -> Result<i32, Failure> {
    let abi = process::landlock_abi();
    if abi < 1 {
        let advice =
            "start the kernel with Landlock (CONFIG_SECURITY_LANDLOCK, and landlock in lsm=)";
        return Err(Failure::new(STAGE, libc::EOPNOTSUPP).advise(advice));
    }
    match enforce(spec)? {
        RulesetStatus::NotEnforced => Err(Failure::new(STAGE, libc::EOPNOTSUPP)),
        RulesetStatus::FullyEnforced | RulesetStatus::PartiallyEnforced => Ok(abi),
    }
}

fn enforce(spec: &Spec) -> Result<RulesetStatus, Failure> {
    let everything = AccessFs::from_all(NEWEST);
    let mut rules = create().map_err(|error| failed(&error))?;
    let granted =
        spec.bindings.iter().filter(|binding| binding.is_writable).map(|binding| &*binding.seen_as);
    let writable =
        ["/tmp", "/dev"].into_iter().map(Path::new).chain(granted).map(|path| (path, everything));
    for (path, access) in
        std::iter::once((Path::new("/"), AccessFs::from_read(NEWEST))).chain(writable)
    {
        let opened = PathFd::new(path).map_err(|error| failed(&error))?;
        rules = rules.add_rule(PathBeneath::new(opened, access)).map_err(|error| failed(&error))?;
    }
    Ok(rules.restrict_self().map_err(|error| failed(&error))?.ruleset)
}

/// The first version is demanded, what came later is used where the kernel has it.
fn create() -> Result<RulesetCreated, RulesetError> {
    Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(ABI::V1))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?
        .create()
}

fn failed(error: &(dyn std::error::Error + 'static)) -> Failure {
    // The library keeps what the kernel said at the end of the chain.
    let chain = std::iter::successors(Some(error), |error| error.source());
    let errno = chain.filter_map(|error| error.downcast_ref::<io::Error>()?.raw_os_error()).last();
    Failure::new(format!("{STAGE} ({error})"), errno.unwrap_or(libc::EIO))
}
