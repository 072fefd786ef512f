//! CustomResourceDefinitions: applied if the cluster does not have the kind, and never replacing existing ones.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api, Client, ResourceExt,
    api::ListParams,
    core::{ApiResource, DynamicObject, GroupVersionKind},
    runtime::wait::{Error, await_condition, conditions::is_crd_established},
};

use super::apply::{Change, apply_one, is_managed, is_missing};

/// Whether the object defines a kind.
pub(super) fn is_definition(object: &DynamicObject) -> bool {
    object.types.as_ref().is_some_and(|types| types.kind == "CustomResourceDefinition")
}

/// Applies a definition, unless the kind was installed by another party, and waits until the kind is served.
pub(super) async fn apply(
    client: &Client,
    api: &Api<DynamicObject>,
    object: &DynamicObject,
) -> kube::Result<Change> {
    let name = object.name_any();
    if api.get_metadata_opt(&name).await?.is_some_and(|found| !is_managed(&found.metadata)) {
        return Ok(Change::Unchanged);
    }
    let change = apply_one(api, object).await?;
    let definitions = Api::<CustomResourceDefinition>::all(client.clone());
    match await_condition(definitions, &name, is_crd_established()).await {
        Ok(_) => Ok(change),
        Err(Error::ProbeFailed(error)) => Err(kube::Error::Service(Box::new(error))),
    }
}

/// Whether objects of the kind exist, which would be deleted with its definition.
pub(super) async fn is_used(client: &Client, object: &DynamicObject) -> kube::Result<bool> {
    let spec = &object.data["spec"];
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let version = text(&spec["versions"][0]["name"]);
    let kind = GroupVersionKind::gvk(&text(&spec["group"]), &version, &text(&spec["names"]["kind"]));
    let resource = ApiResource::from_gvk_with_plural(&kind, &text(&spec["names"]["plural"]));
    let objects = Api::<DynamicObject>::all_with(client.clone(), &resource);
    match objects.list_metadata(&ListParams::default().limit(1)).await {
        Ok(list) => Ok(!list.items.is_empty()),
        Err(error) if is_missing(&error) => Ok(false),
        Err(error) => Err(error),
    }
}
