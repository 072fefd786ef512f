//! Denied requests, by the rule that would permit them.

use claimcheck_model::Denial;

/// A rule that an account lacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MissingRule {
    /// What the account may not do: all denied verbs of a resource.
    pub what: String,
    /// How to permit it.
    pub remedy: String,
}

/// The rules that are missing. Verbs of one account on one resource are one rule.
pub(crate) fn missing_rules(denials: &[Denial]) -> Vec<MissingRule> {
    let mut groups: Vec<(Denial, Vec<&str>)> = Vec::new();
    for denial in denials {
        // All but the verb.
        let group = Denial { verb: String::new(), ..denial.clone() };
        match groups.iter_mut().find(|(other, _)| *other == group) {
            Some((_, verbs)) => verbs.push(&denial.verb),
            None => groups.push((group, vec![&denial.verb])),
        }
    }
    let rule = |(group, verbs): (Denial, Vec<&str>)| {
        let verbs = verbs.join(", ");
        let remedy = group.remedy(&verbs);
        MissingRule { what: Denial { verb: verbs, ..group }.to_string(), remedy }
    };
    groups.into_iter().map(rule).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verbs_of_an_account_on_a_resource_are_one_rule() {
        let denial = |name: &str, verb: &str, resource: &str| Denial {
            user: format!("system:serviceaccount:ns:{name}"),
            verb: verb.into(),
            resource: resource.into(),
            roles: vec!["ClusterRole runner".into()],
            ..Denial::default()
        };
        let denials = [
            denial("a", "list", "nodes"),
            denial("a", "list", "pods"),
            denial("a", "watch", "nodes"),
            denial("b", "watch", "nodes"),
        ];
        let rules = missing_rules(&denials);
        let whats: Vec<&str> = rules.iter().map(|rule| rule.what.as_str()).collect();
        assert_eq!(
            whats,
            [
                "ServiceAccount ns/a may not list, watch nodes at the cluster scope",
                "ServiceAccount ns/a may not list pods at the cluster scope",
                "ServiceAccount ns/b may not watch nodes at the cluster scope",
            ]
        );
        assert_eq!(
            rules[0].remedy,
            "add the rule {apiGroups: [\"\"], resources: [nodes], verbs: [list, watch]} to ClusterRole runner"
        );
    }
}
