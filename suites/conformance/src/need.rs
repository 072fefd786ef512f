//! What a case requires of the driver and of the configuration, and the skip reason if that is missing.

use claimcheck_csi::v1::{
    controller_service_capability::rpc::Type as ControllerType,
    group_controller_service_capability::rpc::Type as GroupType,
    node_service_capability::rpc::Type as NodeType,
    plugin_capability::{service::Type as ServiceType, volume_expansion::Type as ExpansionType},
};

use crate::{
    capabilities::DriverCapabilities,
    case::Access,
    effect::{Effect, NodeEffects},
    waits::{Limit, Waits},
};

/// A requirement without which a row is skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// A service, or topology, that the plugin declares.
    Plugin(ServiceType),
    /// A VolumeExpansion capability of the plugin.
    Expansion(ExpansionType),
    /// A capability of the controller.
    Controller(ControllerType),
    /// A capability of the node.
    Node(NodeType),
    /// A capability of the group controller.
    Group(GroupType),
    /// Volumes with this access type.
    Access(Access),
    /// The driver's paths are accessible locally, so that mounts can be checked.
    Files,
    /// The driver can be restarted.
    Restart,
    /// A second node of the driver.
    SecondNode,
    /// The controller has a separate endpoint.
    TwoEndpoints,
    /// Mutable parameters that the driver accepts are configured.
    MutableParameters,
    /// Mutable parameters that the driver rejects are configured.
    InvalidMutableParameters,
    /// A token audience is configured.
    Tokens,
    /// An effect that no earlier case has reported as absent.
    Effect(Effect),
    /// The same for a case that does not exercise the effect, but fails for the same cause where it is absent. It runs if
    /// the effect could not be checked.
    SameCause(Effect),
    /// The case runs after the one that establishes the effect. If its own error may be a consequence of the absent
    /// effect, it is skipped: see [`Fixture::or_reported`](crate::Fixture). Any other error is a finding of its own.
    Follows(Effect),
}

impl Need {
    /// Expansion of volumes in use.
    pub(crate) const ONLINE_EXPANSION: Self = Self::Expansion(ExpansionType::Online);

    /// As text, for lists.
    pub fn name(self) -> String {
        match self {
            Self::Plugin(service) => service.as_str_name().to_owned(),
            Self::Expansion(schedule) => format!("{} expansion", schedule.as_str_name()),
            Self::Controller(capability) => capability.as_str_name().to_owned(),
            Self::Node(capability) => format!("node {}", capability.as_str_name()),
            Self::Group(capability) => capability.as_str_name().to_owned(),
            Self::Access(access) => format!("{access} volumes"),
            Self::Files => "local paths".to_owned(),
            Self::Restart => "restart".to_owned(),
            Self::SecondNode => "second node".to_owned(),
            Self::TwoEndpoints => "two endpoints".to_owned(),
            Self::MutableParameters => "mutable parameters".to_owned(),
            Self::InvalidMutableParameters => "invalid mutable parameters".to_owned(),
            Self::Tokens => "tokens".to_owned(),
            Self::Effect(effect) | Self::SameCause(effect) | Self::Follows(effect) => {
                effect.name().to_owned()
            }
        }
    }

    /// The effect that it is about.
    pub(crate) const fn effect(self) -> Option<Effect> {
        match self {
            Self::Effect(effect) | Self::SameCause(effect) | Self::Follows(effect) => Some(effect),
            _ => None,
        }
    }

    /// What cases with it may wait for in addition to the responses of their calls, if anything.
    pub(crate) const fn waits(self) -> Option<Waits> {
        match self {
            Self::Restart => Some(Waits::up_to(Limit::CallTimeout, "a restarted driver to become ready")),
            Self::Controller(ControllerType::CreateDeleteSnapshot) => {
                Some(Waits::up_to(Limit::ReadyTimeout, "snapshots to become ready_to_use"))
            }
            Self::Group(GroupType::CreateDeleteGetVolumeGroupSnapshot) => {
                Some(Waits::up_to(Limit::ReadyTimeout, "group snapshots to become ready_to_use"))
            }
            Self::Plugin(_)
            | Self::Expansion(_)
            | Self::Controller(_)
            | Self::Node(_)
            | Self::Group(_)
            | Self::Access(_)
            | Self::Files
            | Self::SecondNode
            | Self::TwoEndpoints
            | Self::MutableParameters
            | Self::InvalidMutableParameters
            | Self::Tokens
            | Self::Effect(_)
            | Self::SameCause(_)
            | Self::Follows(_) => None,
        }
    }

    /// The skip reason, if it is not met.
    fn reason(self, capabilities: &DriverCapabilities) -> String {
        match self {
            Self::Plugin(_) | Self::Expansion(_) => format!("the driver does not declare {}", self.name()),
            Self::Controller(_) | Self::Group(_) => {
                format!("the driver's controller does not declare {}", self.name())
            }
            Self::Node(capability) => {
                format!("the driver's node does not declare {}", capability.as_str_name())
            }
            Self::Access(access) => {
                format!("the driver supports no {access} volumes, or --access-type excludes them")
            }
            Self::Files if capabilities.node_effects == NodeEffects::None => {
                "node effects are not checked (--node-effects none)".to_owned()
            }
            Self::Files => {
                "the driver's paths are not accessible here (path commands are configured)".to_owned()
            }
            Self::Restart if !capabilities.restarts => "restarts are excluded (--no-restarts)".to_owned(),
            Self::Restart => {
                "the driver cannot be restarted: set --restart-command, or let --driver start it".to_owned()
            }
            Self::SecondNode => "no second node: set --second-endpoint".to_owned(),
            Self::TwoEndpoints => "controller and node share one endpoint".to_owned(),
            Self::MutableParameters => {
                "no mutable parameters are configured: set --mutable-parameter".to_owned()
            }
            Self::InvalidMutableParameters => {
                let lacking = "no mutable parameters are configured that the driver rejects";
                format!("{lacking}: set --invalid-mutable-parameter")
            }
            Self::Tokens => "the driver requests no tokens, or --token-audience is not set".to_owned(),
            // Known only once the case has run that establishes it: see `Runner::skip`.
            Self::Effect(effect) | Self::SameCause(effect) | Self::Follows(effect) => {
                format!("the driver lacks {effect}")
            }
        }
    }
}

impl claimcheck_engine::Need for Need {
    type Environment = DriverCapabilities;

    fn listed(&self) -> Option<String> {
        // Lists show what a run requires of a driver and its configuration, and not the dependencies between cases.
        self.effect().is_none().then(|| self.name())
    }

    fn unmet(&self, capabilities: &DriverCapabilities) -> Option<String> {
        (!capabilities.has(*self)).then(|| self.reason(capabilities))
    }
}

#[cfg(test)]
mod tests {
    use claimcheck_engine::{Case as _, plan};

    use super::*;
    use crate::{
        case::{Case, Row},
        catalogue, spec,
    };

    #[test]
    fn a_case_runs_only_if_all_requirements_are_met() {
        const NEEDS: &[Need] = &[Need::Controller(ControllerType::GetCapacity), Need::Restart];
        let row = Row::new("x", spec::CAPACITY, |_| Box::pin(async { Ok(()) })).needs(NEEDS).each();
        let cases = row.cases("s", "about s");
        let mut capabilities =
            DriverCapabilities { accesses: vec![Access::Mount], ..DriverCapabilities::default() };
        let skips = |capabilities: Option<&DriverCapabilities>| {
            plan(&cases, &[], capabilities).into_iter().map(|planned| planned.skip).collect::<Vec<_>>()
        };
        let reason = |need: Need| Some(need.reason(&DriverCapabilities::default()));
        assert_eq!(skips(Some(&capabilities)), [reason(NEEDS[0]), reason(NEEDS[0])]);
        capabilities.controller.push(ControllerType::GetCapacity as i32);
        assert_eq!(skips(Some(&capabilities)), [reason(NEEDS[1]), reason(NEEDS[1])]);
        capabilities.restart = true;
        assert_eq!(skips(Some(&capabilities)), [None, reason(Need::Access(Access::Block))]);
        assert_eq!(skips(None), [None, None]);
        assert_eq!(plan(&cases, &["[block]".to_owned()], None).len(), 1);
    }

    #[test]
    fn node_effects_are_checked_unless_the_configuration_excludes_them() {
        let reason = |node_effects, files| {
            let capabilities = DriverCapabilities { node_effects, files, ..DriverCapabilities::default() };
            claimcheck_engine::Need::unmet(&Need::Files, &capabilities)
        };
        let not_checked = "node effects are not checked (--node-effects none)";
        assert_eq!(reason(NodeEffects::None, false).as_deref(), Some(not_checked));
        assert!(reason(NodeEffects::Checked, false).is_some_and(|reason| reason.contains("path commands")));
        assert_eq!(reason(NodeEffects::Checked, true), None);
    }

    #[test]
    fn a_driver_with_a_fake_is_not_restarted() {
        let reason = |restarts| {
            let capabilities = DriverCapabilities { restarts, ..DriverCapabilities::default() };
            claimcheck_engine::Need::unmet(&Need::Restart, &capabilities)
        };
        assert_eq!(reason(false).as_deref(), Some("restarts are excluded (--no-restarts)"));
        assert!(reason(true).is_some_and(|reason| reason.contains("--restart-command")));
    }

    #[test]
    fn no_two_cases_have_one_name() {
        let cases = catalogue();
        let names: std::collections::BTreeSet<_> = cases.iter().map(Case::id).collect();
        assert_eq!(names.len(), cases.len());
        assert!(cases.len() >= 140, "{} cases", cases.len());
    }
}
