//! A network of a test's own: one namespace for a site, one for each machine, and between them cables
//! that can be pulled.

#![expect(
    clippy::disallowed_methods,
    reason = "a test starts programs and waits for their real end"
)]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use super::full::{full, skip};
use super::processes::tool;

/// Its end of each cable is `10.64.N.1`; the machine's is `10.64.N.2`. A machine's namespace ends
/// with the shell that made it, however that ends.
const LAY: &str = r#"set -e
ip link set lo up
for n in $(seq "$1"); do
    unshare --net setpriv --pdeathsig KILL sleep infinity &
    machine=$!
    until [ "$(readlink /proc/$machine/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.01; done
    ip link add "cable$n" type veth peer name cable netns "$machine"
    ip address add "10.64.$n.1/24" dev "cable$n"
    ip link set "cable$n" up
    nsenter --target "$machine" --net sh -ec "
        ip link set lo up
        ip address add 10.64.$n.2/24 dev cable
        ip link set cable up"
    machines="$machines $machine"
    echo "$machine"
done
read -r _ || true
kill $machines"#;

/// The site's namespace and those of its machines; gone with the value.
pub struct Network {
    holder: Child,
    machines: Vec<String>,
    as_root: bool,
}

impl Network {
    /// With so many machines. `None` where the full tier does not run.
    pub fn of(machines: usize) -> Option<Self> {
        if !full() {
            skip("a network of its own needs RELAY_TEST_FULL=1");
            return None;
        }
        assert!(["ip", "unshare", "nsenter", "setpriv"].iter().all(|name| tool(name).is_some()));
        let as_root = rustix::process::geteuid().is_root();
        let own: &[&str] =
            if as_root { &["--net"] } else { &["--user", "--map-root-user", "--net"] };
        let mut holder = Command::new("unshare")
            .args(own)
            .args(["sh", "-c", LAY, "sh", &machines.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(holder.stdout.take().unwrap()).lines();
        let machines: Vec<String> = lines.take(machines).map(Result::unwrap).collect();
        assert!(machines.iter().all(|pid| pid.parse::<u32>().is_ok()), "{machines:?}");
        Some(Self { holder, machines, as_root })
    }

    /// The same command in the site's namespace.
    pub fn at_the_site(&self, command: &Command) -> Command {
        self.within(&self.holder.id().to_string(), command)
    }

    /// The same command in the namespace of machine `n`, from 1.
    pub fn at(&self, n: usize, command: &Command) -> Command {
        self.within(&self.machines[n - 1], command)
    }

    /// Where machine `n` finds the site.
    pub fn address(n: usize) -> String {
        format!("10.64.{n}.1")
    }

    /// Pulls the cable of machine `n`: nothing passes any more, and nobody is told.
    pub fn pull(&self, n: usize) {
        self.link(n, "down");
    }

    /// Puts the cable of machine `n` in again.
    pub fn plug(&self, n: usize) {
        self.link(n, "up");
    }

    fn link(&self, n: usize, state: &str) {
        let mut set = Command::new("ip");
        set.args(["link", "set", &format!("cable{n}"), state]);
        assert!(self.at_the_site(&set).status().unwrap().success());
    }

    fn within(&self, pid: &str, command: &Command) -> Command {
        let mut entered = Command::new("nsenter");
        entered.args(["--target", pid, "--net"]);
        if !self.as_root {
            entered.args(["--user", "--preserve-credentials"]);
        }
        entered.arg("--").arg(command.get_program()).args(command.get_args()).env_clear();
        let given = command.get_envs().filter_map(|(name, value)| Some((name, value?)));
        let path = std::env::var_os("PATH").unwrap_or_default();
        entered.env("PATH", path).envs(given).stdin(Stdio::null());
        entered
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _gone_already = self.holder.stdin.take().map(|mut line| line.write_all(b"\n"));
        let _gone_already = self.holder.wait();
    }
}
