//! `claimcheck cluster list`, `down` and `prune`: kind clusters created by claimcheck, and loop devices that killed
//! runs left behind on this machine.

use std::process::ExitCode;

use anyhow::Result;
use claimcheck_cluster::detach_orphaned_loop_devices;
use claimcheck_kind as kind;
use claimcheck_kind::{Engine, Kind, ListedCluster, Store, Teardown, Tools, cluster_name};
use comfy_table::{ContentArrangement, Table, TableStyle};
use jiff::{SignedDuration, Timestamp};

/// Prints the clusters.
pub async fn list() -> Result<ExitCode> {
    let (engine, store) = (Engine::find(&Tools::from_environment())?, Store::for_user()?);
    let known = kind::list(&engine, &store).await?;
    if known.is_empty() {
        println!("no kind clusters were created by claimcheck");
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new();
    table.load_style(TableStyle::new()).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(["NAME", "NODES", "AGE", "STATE"]);
    for known in known {
        let ListedCluster { name, standing, record, nodes } = known;
        let age = record.map(|record| age(Timestamp::now().duration_since(record.claimed)));
        let running = nodes.iter().filter(|node| node.running).count();
        let nodes = format!("{running}/{}", nodes.len());
        table.add_row([name, nodes, age.unwrap_or_default(), standing.describe().to_owned()]);
    }
    println!("{table}");
    Ok(ExitCode::SUCCESS)
}

/// Deletes one cluster.
pub async fn down(name: &str) -> Result<ExitCode> {
    let (name, store) = (cluster_name(Some(name))?, Store::for_user()?);
    kind::down(&teardown()?, &store, &name).await?;
    println!("{name} was deleted");
    Ok(ExitCode::SUCCESS)
}

/// Detaches orphaned loop devices and deletes orphaned clusters.
pub async fn prune(all: bool) -> Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    // First, since it requires no container engine.
    let orphaned = detach_orphaned_loop_devices()?;
    for orphaned in &orphaned {
        println!("{orphaned}");
        if orphaned.detached.is_err() {
            code = ExitCode::from(1);
        }
    }
    let pruned = kind::prune(&teardown()?, &Store::for_user()?, all).await?;
    if pruned.is_empty() && orphaned.is_empty() {
        println!("nothing to delete");
    }
    for (known, result) in pruned {
        match result {
            Ok(()) => println!("{} was deleted: it was {}", known.name, known.standing.describe()),
            Err(error) => {
                eprintln!("claimcheck: {:#}", anyhow::Error::from(error));
                code = ExitCode::from(1);
            }
        }
    }
    Ok(code)
}

/// Uses the `kind` program if it is still installed.
fn teardown() -> Result<Teardown> {
    let tools = Tools::from_environment();
    let engine = Engine::find(&tools)?;
    Ok(Teardown::with(Kind::find(&tools, &engine).ok(), engine))
}

/// A duration in its largest unit.
fn age(time: SignedDuration) -> String {
    let seconds = time.as_secs().max(0);
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3_600 => format!("{} min", seconds / 60),
        3_600..86_400 => format!("{} h", seconds / 3_600),
        _ => format!("{} d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_one_unit() {
        let ages =
            [-1, 0, 59, 60, 3_599, 3_600, 86_399, 86_400, 864_000].map(|s| age(SignedDuration::from_secs(s)));
        assert_eq!(ages, ["0 s", "0 s", "59 s", "1 min", "59 min", "1 h", "23 h", "1 d", "10 d"]);
    }
}
