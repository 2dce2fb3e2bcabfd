//! Claims and finishes tasks of a database, as many as it is told, for `scripts/bench`: `init`
//! makes the schema, a worker and a project and ends; else each line of the input is a number of
//! pairs, answered with the seconds they took.

#![expect(clippy::print_stdout, reason = "it is a program of its own")]

use std::io::BufRead as _;
use std::sync::Arc;

use anyhow::Context as _;
use relay::model::{Clock, ForgeKind, Ids, Project, StopReason, Timestamp};
use relay::queue::{Claimant, NewWorker, Queue, RunEnd, Store};
use relay::system::{SystemClock, SystemIds};

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let mut args = std::env::args().skip(1);
    let path = args.next().context("usage: pairs DATABASE [init]")?;
    let store = Store::open(&format!("sqlite://{path}")).await?;
    let queue = Queue::new(store, Arc::new(SystemClock), Arc::new(SystemIds));
    let claimant = register(&queue).await?;
    if args.next().is_some() {
        link(&queue).await?;
    } else {
        for line in std::io::stdin().lock().lines() {
            let pairs: u32 = line?.trim().parse()?;
            let began = SystemClock.uptime();
            for _ in 0..pairs {
                pair(&queue, &claimant).await?;
            }
            println!("{}", (SystemClock.uptime() - began).as_secs_f64());
        }
    }
    queue.close().await;
    Ok(())
}

async fn pair(queue: &Queue, claimant: &Claimant) -> anyhow::Result<()> {
    let claimant = Claimant { claim_id: SystemIds.uuid().parse()?, ..claimant.clone() };
    let claimed = queue.claim(&claimant).await?.context("the queue is empty")?;
    let end = RunEnd::bare(StopReason::NoChanges);
    queue.finish(&claimed.lease.reference(), &claimant.worker, end).await?;
    Ok(())
}

async fn register(queue: &Queue) -> anyhow::Result<Claimant> {
    let instance: relay::model::InstanceId = SystemIds.uuid().parse()?;
    let new = NewWorker {
        name: "bench".parse()?,
        instance: instance.clone(),
        host: "bench".to_owned(),
        lanes: vec!["claude".parse()?],
        labels: Vec::new(),
        forges: vec!["github.com".to_owned()],
        version: "0".to_owned(),
    };
    let worker = queue.register(new).await?.worker.id;
    let claim_id = SystemIds.uuid().parse()?;
    let except = Vec::new();
    Ok(Claimant { worker, instance, claim_id, lanes: None, labels: None, except })
}

async fn link(queue: &Queue) -> anyhow::Result<()> {
    let project = Project {
        slug: "acme/shop".parse()?,
        forge: ForgeKind::Github,
        host: "github.com".to_owned(),
        remote: "https://github.com/acme/shop.git".to_owned(),
        api_base: None,
        default_branch: "main".to_owned(),
        linked_at: Timestamp(1),
    };
    queue.link(project).await?;
    Ok(())
}
