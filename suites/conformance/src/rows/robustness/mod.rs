//! Untrusted input: path traversal in ids and paths, oversized texts, control characters, and secrets in errors and in
//! the driver's output.

mod errors;
mod ids;
mod texts;
mod traversal;

use anyhow::Result;
use claimcheck_csi::{Code, Status, tap::code_name, v1};

use super::{
    ANY_NAME, ATTACH, CHECKS_NODE, CREATE, GROUPS, METADATA, MOUNTS, PERSISTS, SNAPSHOT, SNAPSHOT_USED,
    STAGE, SURVIVES, VOLUME_USED, case, unused,
};
use crate::{alone::Alone, case::Row, expect::Answer, fixture::Fixture, need::Need, spec};

/// Longer than any field may be.
const HUGE: usize = 1 << 20;

/// Enough `../` to reach the root from any directory.
const UP: usize = 16;

/// A message of more bytes repeats the oversized input.
const REPEATED: usize = 8192;

pub(super) const ROWS: &[Row] = &[
    Row::new("a volume_id with path traversal is rejected", spec::CODES, case!(ids::volume_traversal)),
    Row::new(
        "a volume_id with control characters or of 1 MiB is rejected",
        spec::CODES,
        case!(ids::volume_no_id),
    ),
    Row::new(
        "a volume_id of one character is answered as any other that does not exist",
        spec::CODES,
        case!(ids::short),
    ),
    Row::new(
        "a snapshot_id with path traversal or control characters is rejected",
        spec::CODES,
        case!(ids::snapshot_ids),
    )
    .needs(&[SNAPSHOT, CREATE, SNAPSHOT_USED]),
    Row::new(
        "a group_snapshot_id with path traversal or control characters is rejected",
        spec::CODES,
        case!(ids::group_ids),
    )
    .needs(&[GROUPS]),
    Row::new(
        "a metadata request with path traversal or control characters in its id is rejected",
        spec::CODES,
        case!(ids::metadata_ids),
    )
    .needs(&[METADATA]),
    Row::new(
        "a node_id with path traversal or control characters is rejected",
        spec::CODES,
        case!(ids::node_ids),
    )
    .needs(&[ATTACH, CREATE, CHECKS_NODE]),
    Row::new(
        "a source volume_id with path traversal or control characters is rejected",
        spec::CODES,
        case!(ids::sources),
    )
    .needs(&[CREATE, VOLUME_USED]),
    Row::new(
        "CreateVolume with path traversal in the name succeeds or returns InvalidArgument",
        spec::ANY_NAME,
        case!(texts::name_traversal),
    )
    .also(&[spec::INVALID])
    .needs(&[CREATE, ANY_NAME])
    .alone(Alone::MayBreak),
    Row::new(
        "CreateVolume with an invalid name succeeds or returns InvalidArgument",
        spec::INVALID,
        case!(texts::no_name),
    )
    .needs(&[CREATE, ANY_NAME])
    .alone(Alone::MayBreak),
    Row::new(
        "CreateSnapshot with a name of 1 MiB succeeds or returns InvalidArgument",
        spec::INVALID,
        case!(texts::snapshot_name),
    )
    .needs(&[CREATE, SNAPSHOT]),
    Row::new(
        "NodePublishVolume with a relative target_path is rejected",
        spec::INVALID,
        case!(texts::relative_target),
    )
    .needs(&[CREATE]),
    Row::new(
        "NodePublishVolume with .. in target_path succeeds or returns InvalidArgument",
        spec::INVALID,
        case!(texts::target_detour),
    )
    .needs(&[CREATE]),
    Row::new(
        "NodeStageVolume with a staging_target_path of 1 MiB does not crash the driver",
        spec::INVALID,
        case!(texts::staging_huge),
    )
    .needs(&[CREATE, STAGE]),
    Row::new(
        "CreateVolume with parameters of 1 MiB succeeds or returns InvalidArgument",
        spec::INVALID,
        case!(texts::parameters_huge),
    )
    .needs(&[CREATE]),
    Row::new(
        "CreateVolume with a shell command as fs_type succeeds or returns InvalidArgument",
        spec::INVALID,
        case!(texts::fs_injection),
    )
    .needs(&[CREATE])
    .only(crate::case::Access::Mount),
    Row::new(
        "an RPC that CSI does not define returns Unimplemented",
        spec::UNIMPLEMENTED,
        case!(unknown_call),
    )
    .also(&[spec::STATUS, spec::UNSUPPORTED]),
    Row::new(
        "error messages of failing calls contain no secrets",
        spec::SECRET,
        case!(errors::failing_secrets),
    )
    .also(&[spec::LEAKAGE])
    .needs(&[CREATE]),
    Row::new(
        "the contexts of CreateVolume and ControllerPublishVolume contain no secrets",
        spec::CONTEXT_SECRET,
        case!(errors::contexts),
    )
    .also(&[spec::PUBLISH_CONTEXT_SECRET])
    .needs(&[CREATE]),
    Row::new("error messages of the whole run contain no secrets", spec::SECRET, case!(errors::no_secrets))
        .also(&[spec::LEAKAGE])
        .alone(Alone::ChecksRun),
    Row::new("the driver's output of the whole run contains no secrets", spec::SECRET, case!(errors::output))
        .also(&[spec::LOG_SECRETS])
        .alone(Alone::ChecksRun),
    Row::new("errors of the whole run have a message", spec::MESSAGE, case!(errors::words))
        .alone(Alone::ChecksRun),
    Row::new("errors of the whole run have no details", spec::DETAILS, case!(errors::no_details))
        .alone(Alone::ChecksRun),
    Row::new(
        "volumes that no case uses keep their data throughout the run",
        spec::VOLUME_UNIQUE,
        case!(unused::unchanged),
    )
    .needs(&[CREATE, Need::Files, MOUNTS, PERSISTS, SURVIVES])
    .each()
    .alone(Alone::ChecksRun)
    .prepare(case!(unused::written)),
    Row::new("Probe after all other cases succeeds", spec::SERVICE, case!(still_present))
        .also(&[spec::PROBE])
        .alone(Alone::ChecksRun),
];

/// Checks that a call returned an error that is no failure of the driver; `expected` is what another one is reported
/// against.
fn rejected<T>(f: &Fixture, what: &str, answer: Result<T, Status>, expected: &[Code]) -> Result<()> {
    match answer {
        Err(status)
            if matches!(status.code(), Code::InvalidArgument | Code::NotFound | Code::Unimplemented) =>
        {
            let length = status.message().len();
            if length > REPEATED {
                let code = code_name(status.code());
                f.warn(format!("{what} returns {code} with a message of {length} bytes"));
            }
            Ok(())
        }
        answer => answer.refused(what, expected),
    }
}

async fn unknown_call(f: &Fixture) -> Result<()> {
    let mut client = tonic::client::Grpc::new(f.driver().node.service());
    client.ready().await.map_err(|error| anyhow::anyhow!("cannot call the driver: {error}"))?;
    let codec = tonic_prost::ProstCodec::<v1::ProbeRequest, v1::ProbeResponse>::default();
    let path = tonic::codegen::http::uri::PathAndQuery::from_static("/csi.v1.Identity/ClaimcheckUnknown");
    let answer = client.unary(tonic::Request::new(v1::ProbeRequest {}), path, codec).await;
    let answer = answer.map_err(|status| f.watch("ClaimcheckUnknown", status));
    answer.refused("an RPC that CSI does not define", &[Code::Unimplemented])
}

async fn still_present(f: &Fixture) -> Result<()> {
    f.probe(v1::ProbeRequest {}).await.works("Probe after all other cases")?;
    if f.has(CREATE) && f.has(Need::Files) {
        let placed = f.up().await?;
        f.withdraw(&placed).await?;
    }
    Ok(())
}
