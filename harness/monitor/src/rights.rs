//! Rules of RBAC, for errors that name the one that is missing.

use claimcheck_informer::response;
use kube::{Resource, runtime::watcher};

/// The verbs by which a kind is followed.
pub(crate) const FOLLOW: [&str; 2] = ["list", "watch"];

/// What to do if these verbs are not permitted for a kind.
pub(crate) fn remedy<K: Resource<DynamicType = ()>>(verbs: &[&str]) -> String {
    format!(
        "bind a ClusterRole with the rule {{apiGroups: [\"{}\"], resources: [{}], verbs: [{}]}}, as manifests/monitor \
         does",
        K::group(&()),
        K::plural(&()),
        verbs.join(", ")
    )
}

/// Why a kind cannot be watched, with the remedy if a right is missing.
pub(crate) fn reason<K: Resource<DynamicType = ()>>(error: &watcher::Error) -> String {
    let text = response::watch_error(error);
    match claimcheck_informer::is_forbidden(error) {
        true => format!("{text}: {}", remedy::<K>(&FOLLOW)),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::storage::v1::CSINode;
    use kube::core::Status;

    use super::*;

    #[test]
    fn a_missing_right_is_named_and_other_errors_have_no_rule() {
        let error = |code, reason| {
            let status = Status::failure("csinodes is not available", reason).with_code(code);
            watcher::Error::WatchStartFailed(kube::Error::Api(status.boxed()))
        };
        assert_eq!(
            reason::<CSINode>(&error(403, "Forbidden")),
            "csinodes is not available: bind a ClusterRole with the rule {apiGroups: [\"storage.k8s.io\"], resources: \
             [csinodes], verbs: [list, watch]}, as manifests/monitor does"
        );
        assert_eq!(reason::<CSINode>(&error(500, "InternalError")), "csinodes is not available");
    }
}
