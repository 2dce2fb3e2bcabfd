//! A site for the scenarios: the real program as a child, with a project, tokens and workers.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use relay::api::{ClaimRequest, CreateToken, LinkProject, RegisterRequest};
use relay::client::{Client, Endpoint, VERSION};
use relay::model::{ForgeKind, Ids, Worker};
use relay::system::SystemIds;

use crate::line::Line;

/// What every worker of the scenarios serves.
pub const LANE: &str = "process:noop";

/// The machine all of them say they are on.
const HOST: &str = "bench";

/// A running `relay serve`. Dropped before [`Site::stop`] it is killed.
pub struct Site {
    child: Child,
    pub addr: SocketAddr,
    /// The way without a token, for what is set up and not measured.
    pub owner: Client,
    folder: PathBuf,
}

/// A registered worker and its token.
pub struct Hand {
    pub worker: Worker,
    pub instance: String,
    pub token: String,
}

impl Site {
    /// Starts the program `RELAY_BIN` on the database that the harness names.
    pub async fn start() -> anyhow::Result<Self> {
        let folder = std::env::temp_dir().join(format!("relay-peer-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder)?;
        let addr = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let log = std::fs::File::create(folder.join("serve.log"))?;
        let mut command = Command::new(program()?);
        command.args(["serve", "--addr", &addr.to_string(), "--database", &database()?]);
        // One token asks for the doorbell as often as it can: that is what is measured there.
        if limits_rate()? {
            command.args(["--rate", "0"]);
        }
        let child = command
            .env("RELAY_HOME", folder.join("home"))
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .spawn()
            .context("starting RELAY_BIN")?;
        let socket = folder.join("home/relay.sock");
        let owner = Client::new(Endpoint::Unix(socket))?;
        let mut site = Self { child, addr, owner, folder };
        site.ready().await?;
        Ok(site)
    }

    async fn ready(&mut self) -> anyhow::Result<()> {
        for _ in 0..500 {
            if let Some(status) = self.child.try_wait()? {
                bail!("relay serve ended: {status}\n{}", self.log());
            }
            if self.owner.status().await.is_ok() && std::net::TcpStream::connect(self.addr).is_ok()
            {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        bail!("relay serve did not answer within 10 s\n{}", self.log())
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.folder.join("serve.log")).unwrap_or_default()
    }

    /// The process of the site.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Links a repository of this disk, which the tasks are of.
    pub async fn link(&self) -> anyhow::Result<()> {
        let path = self.folder.join("repository");
        let git = |args: &[&str]| -> anyhow::Result<()> {
            let done = Command::new("git").args(args).stdout(Stdio::null()).status()?;
            if done.success() { Ok(()) } else { bail!("git {args:?}: {done}") }
        };
        let at = path.to_str().context("a path")?;
        git(&["init", "-q", "-b", "main", at])?;
        let who = ["-c", "user.name=bench", "-c", "user.email=bench@localhost"];
        let commit = ["commit", "-q", "--allow-empty", "-m", "first"];
        git(&[&["-C", at], &who[..], &commit[..]].concat())?;
        let request = LinkProject {
            forge: ForgeKind::Local,
            slug: "local/bench".parse()?,
            path: Some(at.to_owned()),
            host: HOST.to_owned(),
        };
        self.owner.link(&request).await?;
        Ok(())
    }

    /// A token with these scopes; of a worker it carries its name.
    pub async fn token(&self, scopes: &[&str], worker: Option<&str>) -> anyhow::Result<String> {
        let request = CreateToken {
            name: worker.unwrap_or("person").parse()?,
            scopes: scopes.iter().map(|scope| scope.parse()).collect::<Result<_, _>>()?,
            worker: worker.map(str::parse).transpose()?,
            by: "bench".to_owned(),
        };
        let made = self.owner.create_token(&request).await?;
        Ok(made.secret.secret().expose().to_owned())
    }

    /// A worker that has a token of its own and has registered with it.
    pub async fn hand(&self, name: &str) -> anyhow::Result<Hand> {
        let token = self.token(&["work:claim"], Some(name)).await?;
        let instance = SystemIds.uuid();
        let request = RegisterRequest {
            name: name.parse()?,
            instance_id: instance.parse()?,
            host: HOST.to_owned(),
            lanes: vec![LANE.parse()?],
            labels: Vec::new(),
            forges: Vec::new(),
            version: VERSION.to_owned(),
        };
        let worker = Line::open(self.addr, &token).await?.post("/workers", &request).await?;
        Ok(Hand { worker, instance, token })
    }

    /// Lets the program end, and waits for it, so that its CPU is counted with ours.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM)?;
        let status = self.child.wait()?;
        if !status.success() {
            bail!("relay serve ended with {status}\n{}", self.log());
        }
        std::fs::remove_dir_all(&self.folder)?;
        Ok(())
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // After a failure; a child that was waited for is not signalled.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Hand {
    pub fn claim(&self) -> anyhow::Result<ClaimRequest> {
        Ok(ClaimRequest {
            worker_id: self.worker.id.clone(),
            instance_id: self.instance.parse()?,
            claim_id: SystemIds.uuid().parse()?,
            lanes: None,
            labels: None,
            except: Vec::new(),
        })
    }

    /// The doorbell's path, held until there is something.
    pub fn doorbell(&self, free: u32, since: i64) -> String {
        let (worker, instance) = (&self.worker.id, &self.instance);
        format!(
            "/work/doorbell?lanes={LANE}&worker_id={worker}&instance_id={instance}&free={free}&since={since}&wait=300"
        )
    }
}

fn program() -> anyhow::Result<PathBuf> {
    let path = std::env::var("RELAY_BIN").context("RELAY_BIN names no program")?;
    Ok(Path::new(&path).to_owned())
}

/// Whether the program limits how often a token may ask.
fn limits_rate() -> anyhow::Result<bool> {
    let help = Command::new(program()?).args(["serve", "--help"]).output()?;
    Ok(String::from_utf8_lossy(&help.stdout).contains("--rate"))
}

/// The database of the harness: DSN is Postgres, DB a file.
fn database() -> anyhow::Result<String> {
    if let Ok(dsn) = std::env::var("DSN") {
        return Ok(dsn);
    }
    let file = std::env::var("DB").context("neither DSN nor DB is set")?;
    Ok(format!("sqlite://{file}"))
}
