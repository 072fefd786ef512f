//! The command line of `claimcheck driver`.

use std::path::PathBuf;

use claimcheck_csi::Endpoint;
use clap::Parser;

use crate::{driver::Config, volume::NodeId};

/// The name under which a cluster knows this driver unless told otherwise.
pub const DRIVER_NAME: &str = "claimcheck.csi.dev";

/// Serve the claimcheck CSI driver: volumes that are directories or image files
#[derive(Clone, Debug, Parser)]
pub struct Args {
    /// Unix socket to listen on, for example unix:///csi/csi.sock
    #[arg(long, value_name = "URL", env = "CSI_ENDPOINT")]
    pub endpoint: Endpoint,

    /// The node that this process serves
    #[arg(long, value_name = "ID", value_parser = parse_node_id)]
    pub node_id: NodeId,

    /// Directory that holds all volumes; every driver process of a cluster is given the same one
    #[arg(long, value_name = "DIR")]
    pub state_dir: PathBuf,

    /// Name under which the cluster knows the driver
    #[arg(long, value_name = "NAME", default_value = DRIVER_NAME, value_parser = parse_driver_name)]
    pub driver_name: String,

    /// How many volumes may be attached to the node; 0 for any number
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub max_volumes_per_node: u64,

    /// The largest volume in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 1 << 43)]
    pub max_volume_bytes: u64,
}

impl From<Args> for Config {
    fn from(args: Args) -> Self {
        Self {
            driver_name: args.driver_name,
            node_id: args.node_id,
            max_volumes_per_node: args.max_volumes_per_node,
            max_volume_bytes: args.max_volume_bytes,
            state_dir: args.state_dir,
        }
    }
}

fn parse_node_id(text: &str) -> Result<NodeId, String> {
    NodeId::parse(text).ok_or_else(|| {
        format!("1 to {} letters, digits, '-', '_' and '.' are allowed, the first not a '.'", NodeId::MAX)
    })
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
        Err("1 to 63 letters, digits, '-' and '.' are allowed, both ends a letter or digit".to_owned())
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
    fn bad_names_are_usage_errors() {
        for more in [["--driver-name", "x-"], ["--driver-name", "a/b"], ["--driver-name", ""]] {
            assert!(parse(&more).unwrap_err().to_string().contains("letters, digits"), "{more:?}");
        }
        let bad_node = ["driver", "--endpoint", "unix:///c", "--node-id", "../x", "--state-dir", "/s"];
        assert!(Args::try_parse_from(bad_node).unwrap_err().to_string().contains("letters, digits"));
    }
}
