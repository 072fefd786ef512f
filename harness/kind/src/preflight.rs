//! Looks whether a cluster can be created, before anything is.

use super::{
    answers::Info,
    checks::{self, Holder, Preflight},
    cli::Kind,
    engine::Engine,
    owned::Store,
    program::{ProgramError, Tools},
    teardown::list,
    version::Version,
};

/// What is asked for.
#[derive(Clone, Debug)]
pub struct Needs {
    /// The cluster's name.
    pub name: String,
    /// One that is there, from an earlier run, shall be used.
    pub reuse: bool,
}

/// What a cluster is created with.
#[derive(Clone, Debug)]
pub struct Ready {
    /// The `kind` program.
    pub kind: Kind,
    /// Its version.
    pub kind_version: Version,
    /// The engine's program.
    pub engine: Engine,
    /// What the engine says of itself.
    pub info: Info,
    /// kind's network is there already.
    pub network_was_there: bool,
    /// The cluster that is asked for is there, and nobody has it: it is to be used.
    pub is_there: bool,
}

/// What only an engine that answers can tell.
struct Answers {
    info: Info,
    network_was_there: bool,
    holder: Option<Holder>,
}

/// Looks whether a cluster can be created here.
///
/// # Errors
/// All that stands against it, together.
pub async fn preflight(tools: &Tools, store: &Store, needs: &Needs) -> Result<Ready, Preflight> {
    let mut against = Vec::new();
    let engine = match Engine::find(tools) {
        Ok(engine) => engine,
        Err(error) => {
            against.push(checks::no_engine(&error));
            against.extend(Kind::missing(tools).map(|error| checks::unusable("kind", &error)));
            return Err(Preflight(against));
        }
    };
    let kind = match version(tools, &engine).await {
        Ok((kind, version)) => {
            against.extend(checks::age(version));
            Some((kind, version))
        }
        Err(error) => {
            against.push(checks::unusable("kind", &error));
            None
        }
    };
    let answers = match ask(&engine, store, needs).await {
        Ok(answers) => {
            against.extend(checks::limits(engine.name(), &answers.info));
            against.extend(checks::space(engine.name(), free(&answers.info.root)));
            against.extend(checks::name(&needs.name, answers.holder, needs.reuse));
            Some(answers)
        }
        Err(error) => {
            against.push(checks::unusable(engine.name(), &error));
            None
        }
    };
    match (kind, answers) {
        (Some((kind, kind_version)), Some(Answers { info, network_was_there, holder }))
            if against.is_empty() =>
        {
            Ok(Ready { kind, kind_version, engine, info, network_was_there, is_there: holder.is_some() })
        }
        _ => Err(Preflight(against)),
    }
}

async fn version(tools: &Tools, engine: &Engine) -> Result<(Kind, Version), ProgramError> {
    let kind = Kind::find(tools, engine)?;
    let version = kind.version().await?;
    Ok((kind, version))
}

/// How many bytes are free at a place of the engine, if that is one of this machine.
fn free(root: &str) -> Option<u64> {
    let there = rustix::fs::statvfs(root).ok().filter(|_| !root.is_empty())?;
    Some(there.f_bavail.saturating_mul(there.f_frsize))
}

async fn ask(engine: &Engine, store: &Store, needs: &Needs) -> Result<Answers, ProgramError> {
    let info = engine.info().await?;
    let network_was_there = engine.has_network().await?;
    let ours = list(engine, store).await?.into_iter().find(|known| known.name == needs.name);
    let holder = match ours {
        Some(known) => Some(Holder::Ours { standing: known.standing, containers: known.nodes.len() }),
        None if engine.containers(Some(&needs.name)).await?.is_empty() => None,
        None => Some(Holder::Other),
    };
    Ok(Answers { info, network_was_there, holder })
}
