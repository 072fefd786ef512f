//! Applies and deletes objects of any kind.

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, Patch, PatchParams},
    core::{DynamicObject, GroupVersion},
    discovery::{ApiGroup, Scope, pinned_group},
    runtime::wait::delete::delete_and_finalize,
};
use tokio::time::timeout;

use super::{InstallError, Installed, definition, substitute::PART_OF, title};

/// The field manager.
const MANAGER: &str = "claimcheck";
/// Groups of extensions, which are not required for storage.
const OPTIONAL: [&str; 4] = [
    "monitoring.coreos.com",
    "snapshot.storage.k8s.io",
    "groupsnapshot.storage.k8s.io",
    "apiextensions.k8s.io",
];

/// The prefix of the roles of OpenShift's admission, and a group that only OpenShift serves.
const OPENSHIFT: (&str, &str) = ("system:openshift:scc:", "security.openshift.io/v1");

/// The effect of applying an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It was created.
    Created,
    /// It was changed.
    Changed,
    /// It was unchanged.
    Unchanged,
}

/// An object that was applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Kind and name.
    pub object: String,
    /// The effect.
    pub change: Change,
}

/// API discovery, cached per group.
struct Served<'a> {
    client: &'a Client,
    groups: BTreeMap<String, Option<ApiGroup>>,
}

impl<'a> Served<'a> {
    fn new(client: &'a Client) -> Self {
        Self { client, groups: BTreeMap::new() }
    }

    /// A group in this version; `None` if it is not served.
    async fn group(&mut self, version: &str) -> Result<Option<&ApiGroup>, InstallError> {
        if !self.groups.contains_key(version) {
            let asked: GroupVersion = version.parse().expect("the tests read every manifest");
            let group = match pinned_group(self.client, &asked).await {
                Ok(group) => Some(group),
                Err(error) if is_missing(&error) => None,
                Err(source) => {
                    let source = Box::new(source);
                    return Err(InstallError::Discover { group_version: version.to_owned(), source });
                }
            };
            self.groups.insert(version.to_owned(), group);
        }
        Ok(self.groups.get(version).and_then(Option::as_ref))
    }

    /// The API of the object; `None` if its kind is not served.
    async fn api(&mut self, object: &DynamicObject) -> Result<Option<Api<DynamicObject>>, InstallError> {
        let types = object.types.clone().unwrap_or_default();
        let client = self.client;
        let group = self.group(&types.api_version).await?;
        Ok(group.and_then(|group| group.recommended_kind(&types.kind)).map(
            |(resource, capabilities)| match (&capabilities.scope, &object.metadata.namespace) {
                (Scope::Namespaced, Some(namespace)) => {
                    Api::namespaced_with(client.clone(), namespace, &resource)
                }
                (Scope::Namespaced | Scope::Cluster, _) => Api::all_with(client.clone(), &resource),
            },
        ))
    }
}

/// Whether the object binds an OpenShift role, which does not exist on other clusters.
fn is_of_openshift(object: &DynamicObject) -> bool {
    object.data["roleRef"]["name"].as_str().is_some_and(|role| role.starts_with(OPENSHIFT.0))
}

/// Applies the objects in this order.
pub async fn apply(client: &Client, objects: Vec<DynamicObject>) -> Result<Installed, InstallError> {
    let mut served = Served::new(client);
    let mut installed = Installed::default();
    for object in objects {
        let name = title(&object);
        if is_of_openshift(&object) && served.group(OPENSHIFT.1).await?.is_none() {
            installed.notes.push(format!("{name} is skipped: the cluster is not OpenShift"));
            continue;
        }
        let Some(api) = served.api(&object).await? else {
            let kind = object.types.clone().unwrap_or_default();
            let (group, _) = kind.api_version.split_once('/').unwrap_or_default();
            if !OPTIONAL.contains(&group) {
                return Err(InstallError::Unserved { kind: format!("{}.{group}", kind.kind), object: name });
            }
            installed.notes.push(format!("{name} is skipped: the cluster does not have {group}"));
            continue;
        };
        let applied = match definition::is_definition(&object) {
            true => definition::apply(client, &api, &object).await,
            false => apply_one(&api, &object).await,
        };
        let change = applied.map_err(refused("applied", &name))?;
        installed.applied.push(Applied { object: name, change });
    }
    Ok(installed)
}

pub(super) async fn apply_one(api: &Api<DynamicObject>, object: &DynamicObject) -> kube::Result<Change> {
    let name = object.name_any();
    let before = api.get_metadata_opt(&name).await?.and_then(|found| found.metadata.resource_version);
    // Users' changes are reverted: the manifests are the only source.
    let params = PatchParams::apply(MANAGER).force();
    let after = api.patch(&name, &params, &Patch::Apply(object)).await?.metadata.resource_version;
    Ok(match before {
        None => Change::Created,
        before if before == after => Change::Unchanged,
        Some(_) => Change::Changed,
    })
}

/// The labels of the existing objects, in the order of `objects`; `None` for those that do not exist.
pub async fn existing_labels(
    client: &Client,
    objects: &[DynamicObject],
) -> Result<Vec<Option<BTreeMap<String, String>>>, InstallError> {
    let mut served = Served::new(client);
    let mut labels = Vec::with_capacity(objects.len());
    for object in objects {
        let found = match served.api(object).await? {
            Some(api) => {
                let found = api.get_metadata_opt(&object.name_any()).await;
                found.map_err(refused("read", &title(object)))?
            }
            None => None,
        };
        labels.push(found.map(|found| found.metadata.labels.unwrap_or_default()));
    }
    Ok(labels)
}

/// Deletes the objects in reverse order, and waits for each to be deleted.
pub async fn remove(
    client: &Client,
    objects: Vec<DynamicObject>,
    limit: Duration,
) -> Result<(), InstallError> {
    let mut served = Served::new(client);
    for object in objects.iter().rev() {
        let name = title(object);
        let Some(api) = served.api(object).await? else { continue };
        if definition::is_definition(object)
            && definition::is_used(client, object).await.map_err(refused("looked at", &name))?
        {
            tracing::warn!(name, "not deleted, since objects of this kind exist");
            continue;
        }
        match timeout(limit, remove_one(&api, &object.name_any())).await {
            Ok(result) => result.map_err(refused("removed", &name))?,
            Err(_) => return Err(InstallError::NotDeleted { object: name, waited: limit }),
        }
    }
    Ok(())
}

async fn remove_one(api: &Api<DynamicObject>, name: &str) -> kube::Result<()> {
    let Some(found) = api.get_metadata_opt(name).await? else { return Ok(()) };
    if !is_managed(&found.metadata) {
        tracing::warn!(name, "not deleted, since it was not installed by claimcheck");
        return Ok(());
    }
    // Pods may outlive their workload; the namespace, which is deleted last, does not outlive them.
    match delete_and_finalize(api.clone(), name, &DeleteParams::background()).await {
        Ok(()) => Ok(()),
        Err(kube::runtime::wait::delete::Error::Delete(error)) if is_missing(&error) => Ok(()),
        Err(kube::runtime::wait::delete::Error::Delete(error)) => Err(error),
        Err(error) => Err(kube::Error::Service(Box::new(error))),
    }
}

/// Whether claimcheck installed it.
pub(super) fn is_managed(meta: &ObjectMeta) -> bool {
    meta.labels.as_ref().and_then(|labels| labels.get(PART_OF.0)).map(String::as_str) == Some(PART_OF.1)
}

fn refused(what: &'static str, object: &str) -> impl FnOnce(kube::Error) -> InstallError {
    let object = object.to_owned();
    move |source| InstallError::Refused { what, object, source: Box::new(source) }
}

/// Whether the request failed with not found: the object, or its kind or group.
pub(super) fn is_missing(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code == 404,
        kube::Error::Discovery(_) => true,
        _ => false,
    }
}
