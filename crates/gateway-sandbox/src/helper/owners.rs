//! Where the gateway is root: user namespaces whose maps show a directory's owner as the
//! sandbox's user, so that files keep their owner on the host (mount_setattr(2), ID-mapped mounts).

use std::fs::File;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::failure::{Failure, Stage as _};
use super::write_proc;
use crate::spec::Binding;
use crate::sys::process::{self, Fork};

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
    let stage = "make an owner's map";
    let (ready, told) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).stage(stage)?;
    match process::fork().stage(stage)? {
        Fork::Child => {
            let is_ready = process::unshare(libc::CLONE_NEWUSER).is_ok()
                && rustix::io::write(&told, b"1").is_ok();
            drop(told);
            if is_ready {
                // Until it is killed, once its namespace is held open.
                process::pause();
            }
            process::exit(1)
        }
        Fork::Parent { child } => {
            drop(told);
            let mapped = map(child, &ready, (user, group), shown_as);
            process::kill(child, libc::SIGKILL).stage(stage)?;
            process::wait(child, true).stage(stage)?;
            mapped
        }
    }
}

fn map(
    child: libc::pid_t,
    ready: &OwnedFd,
    owner: (u32, u32),
    shown_as: u32,
) -> Result<OwnedFd, Failure> {
    if rustix::io::read(ready, &mut [0]).stage("make an owner's map")? == 0 {
        return Err(Failure::new("make a user namespace", libc::EPERM));
    }
    write_proc(&format!("/proc/{child}/uid_map"), &format!("{} {shown_as} 1", owner.0))?;
    write_proc(&format!("/proc/{child}/gid_map"), &format!("{} {shown_as} 1", owner.1))?;
    Ok(File::open(format!("/proc/{child}/ns/user")).stage("make an owner's map")?.into())
}
