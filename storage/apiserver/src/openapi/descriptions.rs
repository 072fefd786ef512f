//! The descriptions of built-in types and their fields, for `kubectl explain`: those that k8s-openapi took from the
//! documents of Kubernetes.

use std::collections::HashMap;
use std::sync::LazyLock;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::schemars::SchemaGenerator;
use serde_json::{Map, Value};

/// The descriptions of a type.
#[derive(Debug)]
pub struct Texts {
    /// That of the type.
    pub whole: String,
    /// Those of its fields, by name.
    pub fields: HashMap<String, String>,
}

static TEXTS: LazyLock<HashMap<String, Texts>> =
    LazyLock::new(|| types().into_iter().map(|(name, schema)| (name, texts_of(&schema))).collect());

/// The descriptions of the type with this name, such as `io.k8s.api.core.v1.PodSpec`.
pub fn of(name: &str) -> Option<&'static Texts> {
    TEXTS.get(name)
}

/// The schemas of the served kinds, and of the types that they refer to.
fn types() -> Map<String, Value> {
    let mut generator = SchemaGenerator::default();
    macro_rules! add {
        ($($group:ident::$version:ident { $($kind:ident)* })*) => {
            $($(generator.subschema_for::<k8s_openapi::api::$group::$version::$kind>();)*)*
        };
    }
    add! {
        admissionregistration::v1 { MutatingWebhookConfiguration ValidatingWebhookConfiguration }
        apps::v1 { ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet }
        authentication::v1 { SelfSubjectReview TokenRequest TokenReview }
        authorization::v1 { LocalSubjectAccessReview SelfSubjectAccessReview SelfSubjectRulesReview SubjectAccessReview }
        autoscaling::v1 { Scale }
        autoscaling::v2 { HorizontalPodAutoscaler }
        batch::v1 { CronJob Job }
        coordination::v1 { Lease }
        core::v1 { Binding ConfigMap Endpoints Event LimitRange Namespace Node PersistentVolume PersistentVolumeClaim Pod PodTemplate ReplicationController ResourceQuota Secret Service ServiceAccount }
        discovery::v1 { EndpointSlice }
        events::v1 { Event }
        networking::v1 { Ingress IngressClass NetworkPolicy }
        node::v1 { RuntimeClass }
        policy::v1 { Eviction PodDisruptionBudget }
        rbac::v1 { ClusterRole ClusterRoleBinding Role RoleBinding }
        scheduling::v1 { PriorityClass }
        storage::v1 { CSIDriver CSINode CSIStorageCapacity StorageClass VolumeAttachment VolumeAttributesClass }
    }
    generator.subschema_for::<CustomResourceDefinition>();
    generator.take_definitions(false)
}

fn texts_of(schema: &Value) -> Texts {
    let text = |described: &Value| described["description"].as_str().map(str::to_owned);
    let fields = schema["properties"].as_object().into_iter().flatten();
    Texts {
        whole: text(schema).unwrap_or_default(),
        fields: fields.filter_map(|(name, field)| Some((name.clone(), text(field)?))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::openapi::name_of;
    use crate::schema;

    #[test]
    fn every_type_is_described() {
        // Of meta/v1 only what objects contain is described, and a type without fields is not referred to.
        let is_described =
            |object: &&schema::Object| !object.package.contains(".meta.") && !object.fields.is_empty();
        for object in schema::objects().iter().filter(is_described) {
            let name = name_of(object);
            let texts = of(&name).unwrap_or_else(|| panic!("{name}: add its kind to `types`"));
            assert!(!texts.whole.is_empty(), "{name}");
            // Upstream describes few fields of schemas.
            for field in object.fields.keys().filter(|_| !name.contains("apiextensions")) {
                assert!(texts.fields.contains_key(*field), "{name}.{field}");
            }
        }
    }
}
