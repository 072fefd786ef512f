//! Which sidecar a container is: what `--deployment-sidecar` declares, else what its image, its program or its own name
//! is called. Vendors rename images (`mirrored-..`, `ose-..`), and put several programs into one.

use std::{path::Path, str::FromStr};

use claimcheck_node::image_reference::last_component;
use k8s_openapi::api::core::v1::Container;

use super::{command::is_endpoint, flags};
use crate::sidecars::plan::Replaceable;

/// `--deployment-sidecar CONTAINER=NAME`: the container does the work of this sidecar.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeploymentSidecar {
    pub(super) container: String,
    pub(super) kind: Replaceable,
}

/// An invalid `--deployment-sidecar`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DeploymentSidecarError {
    /// It is not `CONTAINER=NAME`.
    #[error("write CONTAINER=NAME, for example volume-maker=provisioner")]
    Form,
    /// There is no such sidecar.
    #[error("{0} is no sidecar: use {known}", known = Replaceable::ALL.map(Replaceable::name).join(", "))]
    Name(String),
}

impl FromStr for DeploymentSidecar {
    type Err = DeploymentSidecarError;

    fn from_str(text: &str) -> Result<Self, DeploymentSidecarError> {
        let (container, name) = text.trim().split_once('=').ok_or(DeploymentSidecarError::Form)?;
        if container.is_empty() || name.is_empty() {
            return Err(DeploymentSidecarError::Form);
        }
        let kind = Replaceable::ALL.into_iter().find(|known| [known.name(), known.program()].contains(&name));
        let kind = kind.ok_or_else(|| DeploymentSidecarError::Name(name.to_owned()))?;
        Ok(Self { container: container.to_owned(), kind })
    }
}

/// A sidecar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub kind: Replaceable,
    /// It has the flags of upstream's program.
    pub is_upstream: bool,
}

/// The sidecars that a container is declared to be.
pub(super) fn declared<'a>(
    options: &'a [DeploymentSidecar],
    container: &'a str,
) -> impl Iterator<Item = Replaceable> + 'a {
    options.iter().filter(move |option| option.container == container).map(|option| option.kind)
}

/// The sidecar that a container is; `program` is what starts in it, if that is known apart from the container's own
/// command.
///
/// A container that serves the CSI socket is the driver, whatever it does in addition.
pub(super) fn of(
    container: &Container,
    program: Option<&str>,
    options: &[DeploymentSidecar],
) -> Option<Known> {
    let name = |path: &str| Path::new(path).file_name().map(|name| name.display().to_string());
    let words = || container.command.iter().flatten().chain(container.args.iter().flatten());
    let of_name = |name: &str| Replaceable::from_image(name).filter(|_| !serves(container));
    let of_image = Replaceable::from_image(last_component(container.image.as_deref().unwrap_or_default()));
    // The first word is an argument, if the image has an entrypoint.
    let first = words().next().filter(|word| !word.starts_with('-')).map(String::as_str);
    let of_program = || program.into_iter().chain(first).filter_map(name).find_map(|name| of_name(&name));
    let recognised = of_image.or_else(of_program).or_else(|| of_name(&container.name));
    let arguments: Vec<String> = words().cloned().collect();
    let is_upstream = recognised.is_some() || flags::value(&arguments, "csi-address").is_some();
    let declared = declared(options, &container.name).next().filter(|_| !serves(container));
    declared.or(recognised).map(|kind| Known { kind, is_upstream })
}

/// Whether it listens on a CSI socket, so that it is a driver.
fn serves(container: &Container) -> bool {
    let is_socket = |value: &str| value.contains(".sock") || value.ends_with("/socket");
    let arguments: Vec<String> =
        container.command.iter().flatten().chain(container.args.iter().flatten()).cloned().collect();
    let variables = container.env.iter().flatten();
    let variables =
        variables.map(|variable| (variable.name.as_str(), variable.value.as_deref().unwrap_or_default()));
    flags::named(&arguments)
        .into_iter()
        .chain(variables)
        .any(|(name, value)| is_endpoint(name) && is_socket(value))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn known(container: Value, options: &[&str]) -> Option<Known> {
        let options: Vec<DeploymentSidecar> = options.iter().map(|text| text.parse().unwrap()).collect();
        of(&serde_json::from_value(container).unwrap(), None, &options)
    }

    #[test]
    fn sidecars_are_recognised_by_image_program_or_name() {
        use Replaceable::{Attacher, LivenessProbe, Provisioner};
        let upstream = |kind| Some(Known { kind, is_upstream: true });
        let table = [
            (
                json!({"name": "a", "image": "r/ose-csi-external-provisioner-rhel9@sha256:00"}),
                upstream(Provisioner),
            ),
            (
                json!({"name": "a", "image": "acme/all", "command": ["/csi-provisioner"]}),
                upstream(Provisioner),
            ),
            (
                json!({"name": "a", "image": "acme/all", "args": ["/bin/csi-attacher", "-v=5"]}),
                upstream(Attacher),
            ),
            (
                json!({"name": "csi-provisioner", "image": "acme/x", "args": ["--csi-address=/csi/csi.sock"]}),
                upstream(Provisioner),
            ),
            (json!({"name": "liveness-probe", "image": "${PROBE}"}), upstream(LivenessProbe)),
            // The driver, in a container that is called as its work.
            (
                json!({"name": "csi-provisioner", "image": "acme/x", "args": ["--endpoint=unix:///csi/csi.sock"]}),
                None,
            ),
            (json!({"name": "driver", "image": "acme/x"}), None),
        ];
        for (container, expected) in table {
            assert_eq!(known(container.clone(), &[]), expected, "{container}");
        }
    }

    #[test]
    fn a_declaration_comes_first_and_leaves_unknown_flags_alone() {
        use Replaceable::{Provisioner, Snapshotter};
        let own = json!({"name": "maker", "image": "acme/maker"});
        let known_as = |kind, is_upstream| Some(Known { kind, is_upstream });
        assert_eq!(known(own.clone(), &["maker=provisioner"]), known_as(Provisioner, false));
        assert_eq!(known(own, &["other=csi-provisioner"]), None);
        let flags = json!({"name": "maker", "image": "acme/maker", "args": ["--csi-address=/csi/csi.sock"]});
        assert_eq!(known(flags, &["maker=csi-provisioner"]), known_as(Provisioner, true));
        let image = json!({"name": "maker", "image": "k/csi-provisioner"});
        assert_eq!(known(image, &["maker=snapshotter"]), known_as(Snapshotter, true));
        let driver = json!({"name": "d", "image": "acme/d", "env": [{"name": "CSI_ENDPOINT", "value": "/csi/a.sock"}]});
        assert_eq!(known(driver, &["d=provisioner"]), None);
    }

    #[test]
    fn options_that_name_nothing_are_errors() {
        let error = |text: &str| text.parse::<DeploymentSidecar>().unwrap_err().to_string();
        assert!(error("maker").contains("CONTAINER=NAME") && error("=x").contains("CONTAINER=NAME"));
        assert!(error("maker=scheduler").contains("use provisioner, attacher, resizer"));
    }
}
