//! Where the gateway is root: user namespaces whose maps show a directory's owner as the
//! sandbox's user, so that files keep their owner on the host (mount_setattr(2), ID-mapped mounts).

use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::failure::{Failure, Stage as _};
use super::write_proc;
use crate::spec::Binding;
use crate::sys::process;

/// The namespaces, by owner. Empty where the tool is the gateway's own user.
#[derive(Default)]
pub(super) struct Owners {
    known: Vec<((u32, u32), OwnedFd)>,
}

impl Owners {
    /// Makes one namespace for each owner of the bindings that have one.
    pub(super) fn make(bindings: &[Binding], shown_as: u32) -> Result<Self, Failure> {
        let mut owners = Self::default();
        for binding in bindings.iter().filter(|binding| binding.is_owned) {
            let owner = owner_of(&binding.host)?;
            if owner != (shown_as, shown_as) && owners.find(owner).is_none() {
                owners.known.push((owner, namespace(owner, shown_as)?));
            }
        }
        Ok(owners)
    }

    /// Returns the namespace of an owner.
    pub(super) fn find(&self, owner: (u32, u32)) -> Option<BorrowedFd<'_>> {
        self.known.iter().find(|(known, _)| *known == owner).map(|(_, namespace)| namespace.as_fd())
    }
}

fn owner_of(path: &Path) -> Result<(u32, u32), Failure> {
    let metadata = path.metadata().stage_with(|| format!("open {}", path.display()))?;
    Ok((metadata.uid(), metadata.gid()))
}

fn namespace((user, group): (u32, u32), shown_as: u32) -> Result<OwnedFd, Failure> {
    let map = |child| -> Result<OwnedFd, Failure> {
        write_proc(&format!("/proc/{child}/uid_map"), &format!("{user} {shown_as} 1"))?;
        write_proc(&format!("/proc/{child}/gid_map"), &format!("{group} {shown_as} 1"))?;
        Ok(File::open(format!("/proc/{child}/ns/user")).stage("make an owner's map")?.into())
    };
    process::beside_sleeping_child(libc::CLONE_NEWUSER, map).stage("make an owner's map")?
}
