//! What would bring confinement to this machine.

use std::path::Path;

use crate::state::Unavailable;

impl Unavailable {
    /// Finds the remedies for this machine.
    pub(crate) fn on_this_machine(missing: String, advice: Option<String>) -> Self {
        Self { missing, remedies: remedies(advice, &Machine::look()) }
    }

    /// Says that a tool that reaches hosts cannot be held to them without the sandbox.
    pub(crate) fn for_hosts() -> Self {
        Self {
            missing: "a tool that reaches hosts runs only in the sandbox with the gateway's proxy as its one way out, \
                      and this gateway runs without"
                .to_owned(),
            remedies: vec![
                "start the gateway without --sandbox off (sandbox.mode = \"enforce\")".to_owned(),
                "register the tool with resource_limits.network = \"None\"".to_owned(),
            ],
        }
    }
}

/// What of this machine decides between remedies.
#[derive(Debug, Default)]
struct Machine {
    /// Debian's switch, `kernel.unprivileged_userns_clone`, is off.
    forbids_user_namespaces: bool,
    /// `user.max_user_namespaces` is zero.
    has_no_user_namespaces: bool,
    /// Ubuntu's `kernel.apparmor_restrict_unprivileged_userns` is on.
    restricts_by_apparmor: bool,
    is_container: bool,
    program: String,
}

impl Machine {
    fn look() -> Self {
        let is = |path: &str, value: &str| {
            std::fs::read_to_string(path).is_ok_and(|text| text.trim() == value)
        };
        let exists = |path: &str| Path::new(path).exists();
        let program = std::env::current_exe().map(|path| path.display().to_string());
        Self {
            forbids_user_namespaces: is("/proc/sys/kernel/unprivileged_userns_clone", "0"),
            has_no_user_namespaces: is("/proc/sys/user/max_user_namespaces", "0"),
            restricts_by_apparmor: is(
                "/proc/sys/kernel/apparmor_restrict_unprivileged_userns",
                "1",
            ),
            is_container: exists("/.dockerenv")
                || exists("/run/.containerenv")
                || exists("/var/run/secrets/kubernetes.io"),
            program: program
                .unwrap_or_else(|_unknown| "/usr/local/bin/allternit-tools-gateway".to_owned()),
        }
    }
}

fn remedies(advice: Option<String>, machine: &Machine) -> Vec<String> {
    let mut remedies: Vec<String> = advice.into_iter().collect();
    if machine.forbids_user_namespaces {
        remedies
            .push("allow user namespaces: sysctl -w kernel.unprivileged_userns_clone=1".to_owned());
    }
    if machine.has_no_user_namespaces {
        remedies.push("allow user namespaces: sysctl -w user.max_user_namespaces=15000".to_owned());
    }
    if machine.restricts_by_apparmor {
        remedies.push(format!(
            "write `abi <abi/4.0>, profile allternit-tools-gateway {} flags=(unconfined) {{ userns, }}` to \
             /etc/apparmor.d/allternit-tools-gateway and run: apparmor_parser -r /etc/apparmor.d/allternit-tools-gateway",
            machine.program
        ));
    }
    if machine.is_container {
        remedies.push(
            "start the container with --security-opt seccomp=unconfined --security-opt apparmor=unconfined \
             --security-opt systempaths=unconfined (Kubernetes: hostUsers: false, procMount: Unmasked)"
                .to_owned(),
        );
    }
    if remedies.is_empty() {
        remedies.push(
            "use a Linux kernel of 5.13 or later with user namespaces, Landlock (landlock in lsm=) and seccomp"
                .to_owned(),
        );
    }
    remedies.push(
        "run tools without confinement, which every receipt then says: --sandbox off".to_owned(),
    );
    remedies
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(machine: Machine, expected: &str) {
        let remedies = remedies(None, &machine);
        assert!(remedies[0].contains(expected), "{remedies:?}");
        assert_eq!(remedies.len(), 2, "{remedies:?}");
        assert!(remedies[1].contains("--sandbox off"), "{remedies:?}");
    }

    #[test]
    fn each_kind_of_machine_has_its_remedy_and_the_switch() {
        check(Machine::default(), "5.13");
        check(
            Machine { forbids_user_namespaces: true, ..Machine::default() },
            "kernel.unprivileged_userns_clone=1",
        );
        check(
            Machine { has_no_user_namespaces: true, ..Machine::default() },
            "user.max_user_namespaces=15000",
        );
        check(
            Machine {
                restricts_by_apparmor: true,
                program: "/opt/gw".to_owned(),
                ..Machine::default()
            },
            "profile allternit-tools-gateway /opt/gw flags=(unconfined) { userns, }",
        );
        check(
            Machine { is_container: true, ..Machine::default() },
            "--security-opt systempaths=unconfined",
        );
    }
}
