//! Reviews: who the caller is, what a token proves, what a user may do. Answered by `auth::reviews`, and never
//! stored.

use super::{BASE, Resource, Storage};

const AUTHENTICATION: Resource =
    Resource { storage: Storage::Reviews, group: "authentication.k8s.io", ..BASE };

const AUTHORIZATION: Resource = Resource { storage: Storage::Reviews, group: "authorization.k8s.io", ..BASE };

pub(super) fn rows() -> Vec<Resource> {
    vec![
        Resource {
            kind: "SelfSubjectReview",
            plural: "selfsubjectreviews",
            singular: "selfsubjectreview",
            ..AUTHENTICATION
        },
        Resource { kind: "TokenReview", plural: "tokenreviews", singular: "tokenreview", ..AUTHENTICATION },
        Resource {
            storage: Storage::LocalReviews,
            kind: "LocalSubjectAccessReview",
            plural: "localsubjectaccessreviews",
            singular: "localsubjectaccessreview",
            namespaced: true,
            ..AUTHORIZATION
        },
        Resource {
            kind: "SelfSubjectAccessReview",
            plural: "selfsubjectaccessreviews",
            singular: "selfsubjectaccessreview",
            ..AUTHORIZATION
        },
        Resource {
            kind: "SelfSubjectRulesReview",
            plural: "selfsubjectrulesreviews",
            singular: "selfsubjectrulesreview",
            ..AUTHORIZATION
        },
        Resource {
            kind: "SubjectAccessReview",
            plural: "subjectaccessreviews",
            singular: "subjectaccessreview",
            ..AUTHORIZATION
        },
    ]
}
