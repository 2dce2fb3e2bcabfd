//! What lets this machine make boxes where it does not: packages, and settings of the kernel.

use std::path::Path;

use super::super::config::Config;

/// Where the kernel shows its settings.
pub const SETTINGS: &str = "/proc/sys";

/// Where nothing is known of the reason.
const ALLOW: &str = "allow user namespaces: sysctl kernel.unprivileged_userns_clone=1, \
                     kernel.apparmor_restrict_unprivileged_userns=0";

/// A setting of the kernel that forbids namespaces: where it stands, the value that does, and the one
/// that does not.
const FORBID: [(&str, &str, &str); 3] = [
    // Ubuntu 23.10 and later.
    ("kernel.apparmor_restrict_unprivileged_userns", "1", "0"),
    // Debian before 11, and hardened kernels.
    ("kernel.unprivileged_userns_clone", "0", "1"),
    ("user.max_user_namespaces", "0", "15000"),
];

/// The command that lets namespaces be made, where one of the kernel's settings forbids them.
pub fn allow(settings: &Path) -> String {
    let stands = |name: &str| {
        let value = std::fs::read_to_string(settings.join(name.replace('.', "/")));
        value.map(|value| value.trim().to_owned()).ok()
    };
    let forbids = FORBID.iter().filter(|(name, value, _)| stands(name).as_deref() == Some(*value));
    let commands: Vec<String> = forbids
        .map(|(name, _, other)| {
            format!("echo {name}={other} | sudo tee -a /etc/sysctl.d/60-relay.conf")
        })
        .collect();
    match commands.is_empty() {
        true => ALLOW.to_owned(),
        false => format!("{}; sudo sysctl --system", commands.join("; ")),
    }
}

/// The command that installs what a box is made with.
pub fn install(config: &Config) -> &'static str {
    let has = |program| config.program(program).is_some();
    match () {
        () if has("apt") => "sudo apt install bubblewrap socat",
        () if has("dnf") => "sudo dnf install bubblewrap socat",
        () if has("pacman") => "sudo pacman -S bubblewrap socat",
        () if has("zypper") => "sudo zypper install bubblewrap socat",
        () if has("apk") => "sudo apk add bubblewrap socat",
        () => "sudo apt install bubblewrap socat",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_that_forbids_is_the_one_that_is_named() {
        let root = tempfile::tempdir().unwrap();
        let put = |name: &str, value: &str| {
            let path = root.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, value).unwrap();
        };
        assert_eq!(allow(root.path()), ALLOW);
        put("kernel/unprivileged_userns_clone", "1\n");
        put("user/max_user_namespaces", "63000\n");
        assert_eq!(allow(root.path()), ALLOW, "neither of them forbids");
        put("kernel/apparmor_restrict_unprivileged_userns", "1\n");
        assert_eq!(
            allow(root.path()),
            "echo kernel.apparmor_restrict_unprivileged_userns=0 | sudo tee -a \
             /etc/sysctl.d/60-relay.conf; sudo sysctl --system"
        );
        put("user/max_user_namespaces", "0\n");
        assert!(allow(root.path()).contains("user.max_user_namespaces=15000"));
    }
}
