//! The command line of `claimcheck driver`.

use std::path::PathBuf;

use claimcheck_csi::Endpoint;
use clap::Parser;

use crate::{
    capability::{Capabilities, Capability},
    defect::Defect,
    driver::Config,
    host::LOOP_HOLDER_ENV,
    secrets::{RequiredSecret, Secrets},
    tokens::TokenField,
    topology::Segment,
    variant::Variant,
    volume::NodeId,
};

/// The driver's name in the cluster (`CSIDriver`) unless `--driver-name` sets another.
pub const DRIVER_NAME: &str = "claimcheck.csi.dev";

/// Run the built-in CSI driver, which backs volumes by directories or image files
#[derive(Clone, Debug, Parser)]
pub struct Args {
    /// The socket to listen on: unix:///csi/csi.sock, or tcp://127.0.0.1:10000 for development
    #[arg(long, value_name = "URL", env = "CSI_ENDPOINT")]
    pub endpoint: Endpoint,

    /// Numeric id of a group that may also call the driver
    #[arg(long, value_name = "GID")]
    pub socket_group: Option<u32>,

    /// Write one line per call to standard output; the harness reads it from the container's log
    #[arg(long)]
    pub record_calls: bool,

    /// Inject faults into calls according to this file: a JSON list of rules, which may be replaced at any time
    #[arg(long, value_name = "FILE")]
    pub faults: Option<PathBuf>,

    /// Id of the node that this process serves
    #[arg(long, value_name = "ID", value_parser = parse_node_id)]
    pub node_id: NodeId,

    /// Directory that holds all volumes; every driver process of a cluster must use the same one
    #[arg(long, value_name = "DIR")]
    pub state_dir: PathBuf,

    /// Name of the driver in the cluster (the name of its CSIDriver object)
    #[arg(long, visible_alias = "name", value_name = "NAME", default_value = DRIVER_NAME, value_parser = parse_driver_name)]
    pub driver_name: String,

    /// Maximum number of volumes attached to the node; 0 for no limit
    #[arg(long, visible_alias = "max-volumes", value_name = "N", default_value_t = 0)]
    pub max_volumes_per_node: u64,

    /// Lower the limit of all nodes by one for each volume, as if volumes shared slots with other devices
    #[arg(long, hide = true, requires = "max_volumes_per_node")]
    pub volumes_lower_limit: bool,

    /// Maximum size of a volume in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 43)]
    pub max_volume_bytes: u64,

    /// One key of this node's topology segment; may be repeated. A volume belongs to one segment and is
    /// inaccessible from nodes of other segments
    #[arg(long, value_name = "KEY=VALUE", value_parser = parse_topology)]
    pub topology: Vec<(String, String)>,

    /// Total size in bytes of the volumes of one topology segment (of all volumes, without topology); unlimited
    /// by default, since volumes are thinly provisioned
    #[arg(long, value_name = "BYTES")]
    pub capacity: Option<u64>,

    /// Do not require attachment: the same as --disable PUBLISH_UNPUBLISH_VOLUME
    #[arg(long)]
    pub no_attach: bool,

    /// Do not require staging: the same as --disable STAGE_UNSTAGE_VOLUME
    #[arg(long)]
    pub no_stage: bool,

    /// Disable a capability, spelt as in the CSI specification; may be repeated
    #[arg(long, value_name = "CAPABILITY")]
    pub disable: Vec<Capability>,

    /// Reject calls without this secret; with CALL, only calls of that name. May be repeated
    #[arg(long, value_name = "[CALL:]KEY=VALUE")]
    pub require_secret: Vec<RequiredSecret>,

    /// Reject NodePublishVolume without a valid service account token for this audience; may be repeated
    #[arg(long, value_name = "AUDIENCE")]
    pub require_token: Vec<String>,

    /// Reject NodePublishVolume with service account tokens in another field than this
    #[arg(long, value_name = "FIELD", value_enum)]
    pub token_field: Option<TokenField>,

    /// Seconds that calls in progress may take to finish after the driver receives a termination signal
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    pub shutdown_grace: u64,

    /// Run with one seeded defect, to test a conformance suite
    #[arg(long, value_name = "NAME", value_enum, help_heading = "Seeded defects")]
    pub defect: Option<Defect>,

    /// Run with other answers that the specification also permits, to test that a conformance suite accepts them; may be
    /// repeated
    #[arg(long, value_name = "NAME", value_enum, conflicts_with = "defect", help_heading = "Legal variants")]
    pub variant: Vec<Variant>,

    /// Socket of the process that holds the loop devices of raw block volumes open, so that they end with it
    #[arg(long, value_name = "SOCKET", env = LOOP_HOLDER_ENV, hide = true)]
    pub loop_holder: Option<PathBuf>,

    /// Respond to every call with random messages from this seed, to test callers; there are no volumes then
    #[arg(long, value_name = "SEED", hide = true, conflicts_with_all = ["defect", "variant"])]
    pub hostile: Option<u64>,

    /// Number of calls that a hostile driver responds to without an error, before its connections fail
    #[arg(long, value_name = "N", hide = true, requires = "hostile", default_value_t = 100)]
    pub gentle: u64,
}

impl From<Args> for Config {
    fn from(args: Args) -> Self {
        let unattached = args.no_attach.then_some(Capability::PublishUnpublishVolume);
        let unstaged = args.no_stage.then_some(Capability::StageUnstageVolume);
        Self {
            driver_name: args.driver_name,
            node_id: args.node_id,
            max_volumes_per_node: args.max_volumes_per_node,
            volumes_lower_limit: args.volumes_lower_limit,
            max_volume_bytes: args.max_volume_bytes,
            state_dir: args.state_dir,
            topology: Segment::new(args.topology),
            capacity_bytes: args.capacity,
            capabilities: Capabilities::without(args.disable.into_iter().chain(unattached).chain(unstaged)),
            secrets: Secrets::new(args.require_secret),
            token_audiences: args.require_token,
            token_field: args.token_field,
        }
    }
}

fn parse_node_id(text: &str) -> Result<NodeId, String> {
    NodeId::parse(text).ok_or_else(|| {
        format!("1 to {} letters, digits, '-', '_' and '.' are allowed, the first not a '.'", NodeId::MAX)
    })
}

/// A topology key is a Kubernetes qualified name, its value a label value; validated enough that a mistake is
/// reported here and not on a Node object.
fn parse_topology(text: &str) -> Result<(String, String), String> {
    let allowed = |part: &str, more: &[u8]| {
        let fine = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b) || more.contains(&b);
        (1..=63).contains(&part.len()) && part.bytes().all(fine)
    };
    match text.split_once('=') {
        Some((key, value)) if allowed(key, b"/") && allowed(value, b"") => Ok((key.into(), value.into())),
        _ => {
            Err("expected KEY=VALUE, both 1 to 63 letters, digits, '-', '_' and '.', the key also '/'".into())
        }
    }
}

/// CSI specification, GetPluginInfo: at most 63 letters, digits, dashes and dots, both ends alphanumeric.
fn parse_driver_name(text: &str) -> Result<String, String> {
    let inner = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.');
    let ends = |text: &str| {
        let bytes = text.as_bytes();
        bytes.first().is_some_and(u8::is_ascii_alphanumeric)
            && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
    };
    if text.len() <= 63 && ends(text) && text.bytes().all(inner) {
        Ok(text.to_owned())
    } else {
        Err("1 to 63 letters, digits, '-' and '.' are allowed, and both ends must be a letter or digit"
            .to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(more: &[&str]) -> Result<Args, clap::Error> {
        let base = ["driver", "--endpoint", "unix:///csi.sock", "--node-id", "n1", "--state-dir", "/s"];
        Args::try_parse_from(base.iter().chain(more))
    }

    #[test]
    fn defaults() {
        let args = parse(&[]).unwrap();
        assert_eq!(args.driver_name, "claimcheck.csi.dev");
        assert_eq!(args.max_volumes_per_node, 0);
        assert_eq!(args.node_id.as_str(), "n1");
    }

    #[test]
    fn lesser_drivers() {
        let args = parse(&[
            "--name",
            "b.csi.dev",
            "--max-volumes",
            "3",
            "--capacity",
            "1000",
            "--no-attach",
            "--no-stage",
            "--disable",
            "LIST_VOLUMES",
            "--topology",
            "topology.b.csi.dev/zone=a",
            "--topology",
            "rack=1",
        ]);
        let config = Config::from(args.unwrap());
        assert_eq!((config.driver_name.as_str(), config.max_volumes_per_node), ("b.csi.dev", 3));
        assert_eq!(config.capacity_bytes, Some(1000));
        assert_eq!(config.topology.to_string(), "rack=1,topology.b.csi.dev/zone=a");
        for disabled in
            [Capability::PublishUnpublishVolume, Capability::StageUnstageVolume, Capability::ListVolumes]
        {
            assert!(!config.capabilities.has(disabled), "{disabled}");
        }
        assert!(config.capabilities.has(Capability::GetCapacity));
        for bad in [["--topology", "zone"], ["--topology", "=a"], ["--topology", "a=b c"], ["--disable", "X"]]
        {
            parse(&bad).unwrap_err();
        }
    }

    #[test]
    fn variants_are_many_and_a_defect_is_one() {
        let args = parse(&["--variant", "longest-ids", "--variant", "slow"]).unwrap();
        assert_eq!(args.variant, [Variant::LongestIds, Variant::Slow]);
        parse(&["--variant", "slow", "--defect", "loop-leak"]).unwrap_err();
        parse(&["--variant", "slow", "--hostile", "1"]).unwrap_err();
    }

    #[test]
    fn bad_names_are_usage_errors() {
        for more in [["--driver-name", "x-"], ["--driver-name", "a/b"], ["--driver-name", ""]] {
            assert!(parse(&more).unwrap_err().to_string().contains("letters, digits"), "{more:?}");
        }
        let bad_node = ["driver", "--endpoint", "unix:///c", "--node-id", "../x", "--state-dir", "/s"];
        assert!(Args::try_parse_from(bad_node).unwrap_err().to_string().contains("letters, digits"));
    }
}
