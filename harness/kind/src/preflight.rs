//! Checks whether a cluster can be created, before anything is.

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

/// The request.
#[derive(Clone, Debug)]
pub struct PreflightRequest {
    /// The cluster's name.
    pub name: String,
    /// Whether to reuse an existing cluster from an earlier run.
    pub reuse: bool,
}

/// The programs with which a cluster is created.
#[derive(Clone, Debug)]
pub struct Prerequisites {
    /// The `kind` program.
    pub kind: Kind,
    /// Its version.
    pub kind_version: Version,
    /// The engine's program.
    pub engine: Engine,
    /// Information about the engine.
    pub info: Info,
    /// Whether kind's network already exists.
    pub network_existed: bool,
    /// Whether the requested cluster exists and is not in use: it will be reused.
    pub exists: bool,
}

/// Facts that only a responsive engine can provide.
struct EngineState {
    info: Info,
    network_existed: bool,
    holder: Option<Holder>,
}

/// Checks whether a cluster can be created here.
///
/// # Errors
/// All failed checks together.
pub async fn preflight(
    tools: &Tools,
    store: &Store,
    needs: &PreflightRequest,
) -> Result<Prerequisites, Preflight> {
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
    let state = match query(&engine, store, needs).await {
        Ok(state) => {
            against.extend(checks::limits(engine.name(), &state.info));
            against.extend(checks::space(engine.name(), free(&state.info.root)));
            against.extend(checks::name(&needs.name, state.holder, needs.reuse));
            Some(state)
        }
        Err(error) => {
            against.push(checks::unusable(engine.name(), &error));
            None
        }
    };
    match (kind, state) {
        (Some((kind, kind_version)), Some(EngineState { info, network_existed, holder }))
            if against.is_empty() =>
        {
            Ok(Prerequisites { kind, kind_version, engine, info, network_existed, exists: holder.is_some() })
        }
        _ => Err(Preflight(against)),
    }
}

async fn version(tools: &Tools, engine: &Engine) -> Result<(Kind, Version), ProgramError> {
    let kind = Kind::find(tools, engine)?;
    let version = kind.version().await?;
    Ok((kind, version))
}

/// The free bytes in the engine's data directory, if that is on this machine.
fn free(root: &str) -> Option<u64> {
    let present = rustix::fs::statvfs(root).ok().filter(|_| !root.is_empty())?;
    Some(present.f_bavail.saturating_mul(present.f_frsize))
}

async fn query(
    engine: &Engine,
    store: &Store,
    needs: &PreflightRequest,
) -> Result<EngineState, ProgramError> {
    let info = engine.info().await?;
    let network_existed = engine.has_network().await?;
    let existing = list(engine, store).await?.into_iter().find(|known| known.name == needs.name);
    let holder = match existing {
        Some(known) => Some(Holder::Claimcheck { standing: known.standing, containers: known.nodes.len() }),
        None if engine.containers(Some(&needs.name)).await?.is_empty() => None,
        None => Some(Holder::Other),
    };
    Ok(EngineState { info, network_existed, holder })
}
