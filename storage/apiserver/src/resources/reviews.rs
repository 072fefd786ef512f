//! Reviews: who the caller is, what a token proves, what a user may do. Answered by `auth::reviews`, and never
//! stored.

use k8s_openapi::api::authentication::v1::{SelfSubjectReview, TokenReview};
use k8s_openapi::api::authorization::v1::{
    LocalSubjectAccessReview, SelfSubjectAccessReview, SelfSubjectRulesReview, SubjectAccessReview,
};

use super::decode::decode;
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
            decode: decode::<SelfSubjectReview>,
            ..AUTHENTICATION
        },
        Resource {
            kind: "TokenReview",
            plural: "tokenreviews",
            singular: "tokenreview",
            decode: decode::<TokenReview>,
            ..AUTHENTICATION
        },
        Resource {
            storage: Storage::LocalReviews,
            kind: "LocalSubjectAccessReview",
            plural: "localsubjectaccessreviews",
            singular: "localsubjectaccessreview",
            namespaced: true,
            decode: decode::<LocalSubjectAccessReview>,
            ..AUTHORIZATION
        },
        Resource {
            kind: "SelfSubjectAccessReview",
            plural: "selfsubjectaccessreviews",
            singular: "selfsubjectaccessreview",
            decode: decode::<SelfSubjectAccessReview>,
            ..AUTHORIZATION
        },
        Resource {
            kind: "SelfSubjectRulesReview",
            plural: "selfsubjectrulesreviews",
            singular: "selfsubjectrulesreview",
            decode: decode::<SelfSubjectRulesReview>,
            ..AUTHORIZATION
        },
        Resource {
            kind: "SubjectAccessReview",
            plural: "subjectaccessreviews",
            singular: "subjectaccessreview",
            decode: decode::<SubjectAccessReview>,
            ..AUTHORIZATION
        },
    ]
}
