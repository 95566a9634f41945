//! System calls that a tool may not make (seccomp(2)).

use std::collections::BTreeMap;
use std::io;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule, TargetArch, sock_filter,
};

use super::failure::{Failure, Stage as _};
use crate::spec::Spec;

/// Calls that do not exist for a tool, so that programs fall back to older ones.
///
/// `clone3` and `openat2` take their arguments in memory, where no filter can look.
const ABSENT: &[libc::c_long] = &[
    libc::SYS_clone3,
    libc::SYS_openat2,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
];

/// Calls that do not exist for a tool with a memory limit: memory without an owner, which stands
/// in no process's account once it is not mapped.
const ABSENT_WITH_MEMORY_LIMIT: &[libc::c_long] = &[libc::SYS_memfd_create, libc::SYS_shmget];

/// Calls that a tool may not make, whatever their arguments.
#[rustfmt::skip]
const REFUSED: &[libc::c_long] = &[
    // Other processes.
    libc::SYS_ptrace, libc::SYS_process_vm_readv, libc::SYS_process_vm_writev, libc::SYS_kcmp,
    libc::SYS_pidfd_getfd, libc::SYS_migrate_pages, libc::SYS_move_pages,
    // Mounts and namespaces.
    libc::SYS_mount, libc::SYS_umount2, libc::SYS_pivot_root, libc::SYS_chroot, libc::SYS_open_tree,
    libc::SYS_move_mount, libc::SYS_fsopen, libc::SYS_fsconfig, libc::SYS_fsmount, libc::SYS_fspick,
    libc::SYS_mount_setattr, libc::SYS_unshare, libc::SYS_setns,
    // Large or privileged parts of the kernel.
    libc::SYS_keyctl, libc::SYS_add_key, libc::SYS_request_key, libc::SYS_bpf,
    libc::SYS_perf_event_open, libc::SYS_userfaultfd, libc::SYS_memfd_secret,
    libc::SYS_fanotify_init, libc::SYS_name_to_handle_at, libc::SYS_open_by_handle_at,
    libc::SYS_init_module, libc::SYS_finit_module, libc::SYS_delete_module, libc::SYS_kexec_load,
    libc::SYS_reboot, libc::SYS_swapon, libc::SYS_swapoff, libc::SYS_acct, libc::SYS_quotactl,
    libc::SYS_quotactl_fd, libc::SYS_syslog, libc::SYS_vhangup, libc::SYS_sethostname,
    libc::SYS_setdomainname,
    // Clocks.
    libc::SYS_settimeofday, libc::SYS_adjtimex, libc::SYS_clock_settime, libc::SYS_clock_adjtime,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_kexec_file_load,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
];

/// The bits of `clone` that ask for a namespace.
const NEW_NAMESPACES: u32 = (libc::CLONE_NEWNS
    | libc::CLONE_NEWCGROUP
    | libc::CLONE_NEWUTS
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUSER
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET)
    .cast_unsigned();
const SET_ID_BITS: [u32; 2] = [libc::S_ISUID, libc::S_ISGID];
/// `fchmodat2`, which the C library's bindings lack on some architectures.
const SYS_FCHMODAT2: libc::c_long = 452;
/// The bit of `O_TMPFILE` that is not `O_DIRECTORY`.
const UNNAMED_FILE: u32 = (libc::O_TMPFILE & !libc::O_DIRECTORY).cast_unsigned();
/// `TIOCLINUX` of the console, which can paste as its user.
const TIOCLINUX: u32 = 0x541C;

/// Installs the filter. INVARIANT: no_new_privs is set, as the kernel demands.
pub(super) fn restrict(spec: &Spec) -> Result<(), Failure> {
    let program = program(spec).stage("compile the seccomp filter")?;
    seccompiler::apply_filter(&program)
        .map_err(io::Error::other)
        .stage("restrict system calls with seccomp")
}

fn program(spec: &Spec) -> io::Result<BpfProgram> {
    let architecture = TargetArch::try_from(std::env::consts::ARCH).map_err(io::Error::other)?;
    let refuse = SeccompAction::Errno(libc::EPERM.cast_unsigned());
    let filter =
        SeccompFilter::new(refused(spec.has_proxy)?, SeccompAction::Allow, refuse, architecture)
            .map_err(io::Error::other)?;
    let has_memory_limit = spec.limits.memory_bytes.is_some();
    let unaccounted = if has_memory_limit { ABSENT_WITH_MEMORY_LIMIT } else { &[] };
    let mut program = absent(&[ABSENT, unaccounted].concat());
    program.extend(BpfProgram::try_from(filter).map_err(io::Error::other)?);
    Ok(program)
}

/// Answers that a call does not exist. What passes meets the filter that follows, which kills
/// what is of a foreign architecture.
fn absent(numbers: &[libc::c_long]) -> BpfProgram {
    const X32_BIT: u32 = 0x4000_0000;
    let step = |code: u32, jt, jf, k| sock_filter {
        code: u16::try_from(code).unwrap_or(u16::MAX),
        jt,
        jf,
        k,
    };
    let is_equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let is_at_least = libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K;
    let mut program = vec![step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0)];
    let count = u8::try_from(numbers.len()).unwrap_or(u8::MAX);
    for (left, number) in (1..=count).rev().zip(numbers) {
        // To the refusal: past the tests that are left, the last of which is for x32.
        program.push(step(is_equal, left, 0, u32::try_from(*number).unwrap_or(u32::MAX)));
    }
    // Numbers of the x32 interface run under the same architecture.
    program.push(step(is_at_least, 0, 1, X32_BIT));
    program.push(step(
        libc::BPF_RET | libc::BPF_K,
        0,
        0,
        libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned(),
    ));
    program
}

fn refused(has_proxy: bool) -> io::Result<BTreeMap<i64, Vec<SeccompRule>>> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        REFUSED.iter().map(|number| (*number, Vec::new())).collect();
    let namespaces = (0..u32::BITS).map(|shift| 1 << shift).filter(|bit| NEW_NAMESPACES & bit != 0);
    rules.insert(
        libc::SYS_clone,
        namespaces.map(|bit| rule([has_bits(0, bit)])).collect::<io::Result<_>>()?,
    );
    for (number, argument) in modes() {
        let set_id = SET_ID_BITS.map(|bit| rule([has_bits(argument, bit)]));
        rules.insert(number, set_id.into_iter().collect::<io::Result<_>>()?);
    }
    for (number, argument) in devices() {
        let kinds = [libc::S_IFCHR, libc::S_IFBLK];
        let nodes = kinds.map(|kind| rule([masked(argument, libc::S_IFMT, kind)]));
        let set_id = SET_ID_BITS.map(|bit| rule([has_bits(argument, bit)]));
        rules.insert(number, nodes.into_iter().chain(set_id).collect::<io::Result<_>>()?);
    }
    for (number, flags, mode) in opens() {
        let creations = [libc::O_CREAT.cast_unsigned(), UNNAMED_FILE];
        let pairs =
            creations.into_iter().flat_map(|creation| SET_ID_BITS.map(|bit| (creation, bit)));
        let set_id =
            pairs.map(|(creation, bit)| rule([has_bits(flags, creation), has_bits(mode, bit)]));
        rules.insert(number, set_id.collect::<io::Result<_>>()?);
    }
    // Compared on the low 32 bits, as the kernel does (CVE-2019-10063).
    let requests = [libc::TIOCSTI, libc::TIOCSETD, TIOCLINUX.into()].map(u32::try_from);
    let requests = requests.map(|request| rule([equal(1, request.map_err(io::Error::other)?)]));
    rules.insert(libc::SYS_ioctl, requests.into_iter().collect::<io::Result<_>>()?);
    rules.insert(libc::SYS_prctl, vec![rule([equal(0, libc::PR_SET_PTRACER.cast_unsigned())])?]);
    let unix = libc::AF_UNIX.cast_unsigned();
    let sockets = if has_proxy { other_than_streams()? } else { vec![rule([other(0, unix)])?] };
    rules.insert(libc::SYS_socket, sockets);
    rules.insert(libc::SYS_socketpair, vec![rule([other(0, unix)])?]);
    // Another process's limits: the init's keep it able to add up what is used.
    rules.insert(libc::SYS_prlimit64, vec![rule([other(0, 0)])?]);
    Ok(rules)
}

/// What `socket` refuses to a call with a way out: all but Unix sockets and TCP, of which only the
/// call's own loopback can be reached.
fn other_than_streams() -> io::Result<Vec<SeccompRule>> {
    const STREAM: u32 = libc::SOCK_STREAM.cast_unsigned();
    let [unix, v4, v6] =
        [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6].map(|family| family.cast_unsigned());
    let mut rules = vec![rule([other(0, unix), other(0, v4), other(0, v6)])?];
    for family in [v4, v6] {
        // The low four bits are the type, the others are flags.
        for bit in [1, 2, 4, 8] {
            rules.push(rule([equal(0, family), masked(1, bit, !STREAM & bit)])?);
        }
        let tcp = libc::IPPROTO_TCP.cast_unsigned();
        rules.push(rule([equal(0, family), other(2, 0), other(2, tcp)])?);
    }
    Ok(rules)
}

/// Calls that set a mode, and the position of the mode.
fn modes() -> Vec<(i64, u8)> {
    vec![
        (libc::SYS_fchmod, 1),
        (libc::SYS_fchmodat, 2),
        (SYS_FCHMODAT2, 2),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_chmod, 1),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_creat, 1),
    ]
}

/// Calls that make a node, and the position of its kind and mode.
fn devices() -> Vec<(i64, u8)> {
    vec![
        (libc::SYS_mknodat, 2),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_mknod, 1),
    ]
}

/// Calls that open a file, and the positions of flags and mode.
fn opens() -> Vec<(i64, u8, u8)> {
    vec![
        (libc::SYS_openat, 2, 3),
        #[cfg(target_arch = "x86_64")]
        (libc::SYS_open, 1, 2),
    ]
}

type Condition = io::Result<SeccompCondition>;

fn condition(argument: u8, operator: SeccompCmpOp, value: u32) -> Condition {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value.into())
        .map_err(io::Error::other)
}

fn equal(argument: u8, value: u32) -> Condition {
    condition(argument, SeccompCmpOp::Eq, value)
}

fn other(argument: u8, value: u32) -> Condition {
    condition(argument, SeccompCmpOp::Ne, value)
}

fn masked(argument: u8, mask: u32, value: u32) -> Condition {
    condition(argument, SeccompCmpOp::MaskedEq(mask.into()), value)
}

fn has_bits(argument: u8, bits: u32) -> Condition {
    masked(argument, bits, bits)
}

/// Returns a rule that matches where all conditions do.
fn rule<const COUNT: usize>(conditions: [Condition; COUNT]) -> io::Result<SeccompRule> {
    SeccompRule::new(conditions.into_iter().collect::<io::Result<_>>()?).map_err(io::Error::other)
}
