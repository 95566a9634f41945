//! What a tool's process gives up before it becomes the tool: limits, privileges, system calls.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use landlock::{
    ABI, Access as _, AccessFs, CompatLevel, Compatible as _, PathBeneath, PathFd, Ruleset, RulesetAttr as _,
    RulesetCreatedAttr as _, RulesetStatus, Scope,
};
use seccompiler::{
    SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};

use crate::root::{Failure, Stage};
use crate::spec::{ProcessLimits, Spec};
use crate::sys::process;

/// Sets every limit of the process; it cannot raise them again.
pub(crate) fn set_limits(limits: &ProcessLimits) -> Result<(), Failure> {
    let rows = [
        ("core", libc::RLIMIT_CORE, Some((0, 0))),
        ("locked memory", libc::RLIMIT_MEMLOCK, Some((65_536, 65_536))),
        ("message queues", libc::RLIMIT_MSGQUEUE, Some((0, 0))),
        ("nice", libc::RLIMIT_NICE, Some((0, 0))),
        ("real-time priority", libc::RLIMIT_RTPRIO, Some((0, 0))),
        ("open files", libc::RLIMIT_NOFILE, Some((limits.open_files, limits.open_files))),
        ("processes", libc::RLIMIT_NPROC, Some((limits.processes, limits.processes))),
        ("file size", libc::RLIMIT_FSIZE, Some((limits.file_bytes, limits.file_bytes))),
        // Address space would count what runtimes merely reserve; data is what they use.
        ("memory", libc::RLIMIT_DATA, limits.memory_bytes.map(|bytes| (bytes, bytes))),
        ("processor time", libc::RLIMIT_CPU, limits.cpu_seconds.map(|seconds| (seconds, seconds + 1))),
    ];
    for (name, resource, limit) in rows {
        if let Some((soft, hard)) = limit {
            process::set_limit(resource, soft, hard).stage(|| format!("limit {name}"))?;
        }
    }
    Ok(())
}

/// Gives up privileges, then paths, then system calls, in the order that each step allows.
///
/// Returns the version of Landlock that is enforced.
pub(crate) fn give_up(spec: &Spec) -> Result<i32, Failure> {
    process::drop_capabilities().stage(|| "drop capabilities".to_owned())?;
    process::prctl(libc::PR_SET_NO_NEW_PRIVS, 1).stage(|| "set no_new_privs".to_owned())?;
    let landlock_abi = restrict_paths(spec).stage(|| "restrict paths with Landlock".to_owned())?;
    restrict_system_calls().stage(|| "restrict system calls with seccomp".to_owned())?;
    Ok(landlock_abi)
}

/// A second layer under the mounts: reading and executing anywhere, writing only where granted.
fn restrict_paths(spec: &Spec) -> io::Result<i32> {
    let newest = ABI::V6;
    let all = AccessFs::from_all(newest);
    let read = AccessFs::from_read(newest);
    let refused = |error: &dyn std::fmt::Display| io::Error::other(error.to_string());
    let mut rules = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(ABI::V1))
        .map_err(|error| refused(&error))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(all)
        .map_err(|error| refused(&error))?
        .scope(Scope::from_all(newest))
        .map_err(|error| refused(&error))?
        .create()
        .map_err(|error| refused(&error))?;
    let writable = spec.directories.iter().filter(|directory| directory.is_writable).map(|directory| &*directory.seen_as);
    let grants = std::iter::once((Path::new("/"), read))
        .chain(["/tmp", "/dev"].into_iter().map(|path| (Path::new(path), all)))
        .chain(writable.map(|path| (path, all)));
    for (path, access) in grants {
        let beneath = PathBeneath::new(PathFd::new(path).map_err(|error| refused(&error))?, access);
        rules = rules.add_rule(beneath).map_err(|error| refused(&error))?;
    }
    let status = rules.restrict_self().map_err(|error| refused(&error))?;
    if status.ruleset == RulesetStatus::NotEnforced {
        return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
    }
    Ok(process::landlock_abi())
}

/// System calls that do not exist for a tool, so that programs fall back to others.
const ABSENT: &[libc::c_long] =
    &[libc::SYS_clone3, libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];

/// System calls that a tool may not make, whatever their arguments.
const REFUSED: &[libc::c_long] = &[
    libc::SYS_ptrace, libc::SYS_process_vm_readv, libc::SYS_process_vm_writev, libc::SYS_kcmp,
    libc::SYS_pidfd_getfd, libc::SYS_mount, libc::SYS_umount2, libc::SYS_pivot_root, libc::SYS_chroot,
    libc::SYS_open_tree, libc::SYS_move_mount, libc::SYS_fsopen, libc::SYS_fsconfig, libc::SYS_fsmount,
    libc::SYS_fspick, libc::SYS_mount_setattr, libc::SYS_unshare, libc::SYS_setns, libc::SYS_keyctl,
    libc::SYS_add_key, libc::SYS_request_key, libc::SYS_bpf, libc::SYS_perf_event_open,
    libc::SYS_userfaultfd, libc::SYS_init_module, libc::SYS_finit_module, libc::SYS_delete_module,
    libc::SYS_kexec_load, libc::SYS_kexec_file_load, libc::SYS_reboot, libc::SYS_swapon,
    libc::SYS_swapoff, libc::SYS_acct, libc::SYS_quotactl, libc::SYS_quotactl_fd, libc::SYS_syslog,
    libc::SYS_settimeofday, libc::SYS_adjtimex, libc::SYS_clock_settime, libc::SYS_clock_adjtime,
    libc::SYS_name_to_handle_at, libc::SYS_open_by_handle_at, libc::SYS_iopl, libc::SYS_ioperm,
    libc::SYS_modify_ldt, libc::SYS_fanotify_init, libc::SYS_vhangup, libc::SYS_sethostname,
    libc::SYS_setdomainname, libc::SYS_migrate_pages, libc::SYS_move_pages, libc::SYS_memfd_secret,
];

/// Namespaces that `clone` may not make.
const NEW_NAMESPACES: u64 = 0x7e02_0000;
/// Set-user-id and set-group-id.
const SET_ID_BITS: u64 = 0o6000;

/// Installs two filters: what does not exist, and what is refused.
fn restrict_system_calls() -> io::Result<()> {
    let absent = ABSENT.iter().map(|number| (*number, Vec::new())).collect();
    let mut program = without_x32();
    program.extend(compile(absent, libc::ENOSYS)?);
    seccompiler::apply_filter(&program).map_err(io::Error::other)?;
    let mut refused: BTreeMap<libc::c_long, Vec<SeccompRule>> =
        REFUSED.iter().map(|number| (*number, Vec::new())).collect();
    refused.insert(libc::SYS_clone, any_bits(0, NEW_NAMESPACES)?);
    for (number, argument) in [(libc::SYS_chmod, 1), (libc::SYS_fchmod, 1), (libc::SYS_fchmodat, 2), (SYS_FCHMODAT2, 2)] {
        refused.insert(number, any_bits(argument, SET_ID_BITS)?);
    }
    for (number, argument) in [(libc::SYS_mknod, 1), (libc::SYS_mknodat, 2)] {
        let kinds = [libc::S_IFCHR, libc::S_IFBLK].into_iter();
        let rules = kinds.map(|kind| Condition::masked(argument, u64::from(libc::S_IFMT), u64::from(kind))?.rule());
        refused.insert(number, rules.collect::<io::Result<_>>()?);
    }
    let ioctls = [libc::TIOCSTI, libc::TIOCLINUX, libc::TIOCSETD].into_iter();
    // Compared on the low 32 bits, as the kernel does.
    let rules = ioctls.map(|request| Condition::equal(1, request)?.rule());
    refused.insert(libc::SYS_ioctl, rules.collect::<io::Result<_>>()?);
    // A set-tracer request could let another process trace this one.
    refused.insert(libc::SYS_prctl, vec![Condition::equal(0, libc::PR_SET_PTRACER as u64)?.rule()?]);
    refused.insert(libc::SYS_socket, vec![Condition::other(0, libc::AF_UNIX as u64)?.rule()?]);
    seccompiler::apply_filter(&compile(refused, libc::EPERM)?).map_err(io::Error::other)
}

/// `fchmodat2`, which the C library's bindings may lack.
const SYS_FCHMODAT2: libc::c_long = 452;

struct Condition(SeccompCondition);

impl Condition {
    fn new(argument: u8, operator: SeccompCmpOp, value: u64) -> io::Result<Self> {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value).map(Self).map_err(io::Error::other)
    }

    fn equal(argument: u8, value: u64) -> io::Result<Self> {
        Self::new(argument, SeccompCmpOp::Eq, value)
    }

    fn other(argument: u8, value: u64) -> io::Result<Self> {
        Self::new(argument, SeccompCmpOp::Ne, value)
    }

    fn masked(argument: u8, mask: u64, value: u64) -> io::Result<Self> {
        Self::new(argument, SeccompCmpOp::MaskedEq(mask), value)
    }

    fn rule(self) -> io::Result<SeccompRule> {
        SeccompRule::new(vec![self.0]).map_err(io::Error::other)
    }
}

/// One rule for each bit, any of which is enough.
fn any_bits(argument: u8, mask: u64) -> io::Result<Vec<SeccompRule>> {
    let bits = (0..64).map(|shift| 1_u64 << shift).filter(|bit| mask & bit != 0);
    bits.map(|bit| Condition::masked(argument, bit, bit)?.rule()).collect()
}

/// Refuses the numbers of the x32 interface, which run under the same architecture.
fn without_x32() -> seccompiler::BpfProgram {
    const X32_BIT: u32 = 0x4000_0000;
    let instruction = |code: u32, jf, k| seccompiler::sock_filter { code: code as u16, jt: 0, jf, k };
    vec![
        instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
        instruction(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, 1, X32_BIT),
        instruction(libc::BPF_RET | libc::BPF_K, 0, libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned()),
    ]
}

fn compile(rules: BTreeMap<libc::c_long, Vec<SeccompRule>>, errno: i32) -> io::Result<seccompiler::BpfProgram> {
    let action = SeccompAction::Errno(errno.cast_unsigned());
    let rules = rules.into_iter().collect();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, action, TargetArch::x86_64).map_err(io::Error::other)?;
    filter.try_into().map_err(io::Error::other)
}
