//! The CreateVolume request for a claim, and the PersistentVolume from its response.
//!
//! Upstream: `prepareProvision` and `Provision` in external-provisioner `pkg/controller/controller.go`.

use std::{collections::BTreeMap, sync::Arc};

use claimcheck_csi::v1::{
    CapacityRange, CreateVolumeRequest, Volume, VolumeCapability,
    controller_service_capability::rpc::Type as Rpc,
};
use claimcheck_informer::{DataSource, World, quantity, reference};
use claimcheck_model::{PROVISIONED_BY, PROVISIONER_FINALIZER, SELECTED_NODE};
use k8s_openapi::{
    api::{
        core::v1::{
            CSIPersistentVolumeSource, PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimSpec,
            PersistentVolumeSpec, SecretReference,
        },
        storage::v1::{StorageClass, VolumeAttributesClass},
    },
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};

use super::{
    secrets::{self, Purpose, is_secret_parameter},
    source::{self, Content, SourceError},
    topology::{self, TopologyError},
};
use crate::{
    provisioner::{
        DELETION_SECRET_NAME, DELETION_SECRET_NAMESPACE, Incapable, MODIFY_SECRET_NAME,
        MODIFY_SECRET_NAMESPACE, Settings, SourceObject,
    },
    rpc::{AccessModeError, RESERVED, SecretNameError, access_mode, volume_capability},
};

/// A volume attribute: the identity of the provisioner.
const IDENTITY: &str = "storage.kubernetes.io/csiProvisionerIdentity";

/// Why no volume can be created for a claim at present, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Its class was deleted.
    #[error("storageclass.storage.k8s.io {0:?} not found")]
    NoClass(String),
    /// See the error.
    #[error(transparent)]
    Incapable(#[from] Incapable),
    /// A feature of existing volumes only.
    #[error("claim Selector is not supported")]
    Selector,
    /// It names a VolumeAttributesClass, and the driver modifies no volumes.
    #[error(
        "CSI driver does not support VolumeAttributesClass: controller MODIFY_VOLUME capability is not reported"
    )]
    NoModify,
    /// The request is missing or is not a quantity.
    #[error("the claim's storage request {0:?} is not a quantity")]
    Size(String),
    /// The class specifies the file system twice.
    #[error("fstype specified in parameters with both \"fstype\" and \"{RESERVED}fstype\" keys")]
    TwoFsTypes,
    /// A misspelt parameter, most likely.
    #[error(
        "failed to strip CSI Parameters of prefixed keys: found unknown parameter key {0:?} with reserved namespace \
         {RESERVED}"
    )]
    UnknownParameter(String),
    /// Its VolumeAttributesClass does not exist.
    #[error("volumeattributesclasses.storage.k8s.io {0:?} not found")]
    NoAttributesClass(String),
    /// Its VolumeAttributesClass belongs to another driver.
    #[error(
        "VAC {class} referenced in PVC is for driver {driver} which does not match driver name {expected}"
    )]
    ForeignAttributesClass {
        /// The class.
        class: String,
        /// Its driver.
        driver: String,
        /// The provisioner's driver.
        expected: String,
    },
    /// See the error.
    #[error(transparent)]
    AccessMode(#[from] AccessModeError),
    /// See the error.
    #[error(transparent)]
    Secret(#[from] SecretNameError),
    /// See the error.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// See the error.
    #[error(transparent)]
    Source(#[from] SourceError),
}

/// A driver's response that cannot become a volume.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnusableVolume {
    /// Less than requested.
    #[error("created volume capacity {got} less than requested capacity {expected}")]
    TooSmall {
        /// Actual size in bytes.
        got: i64,
        /// Requested size in bytes.
        expected: i64,
    },
    /// It should have a content source, and the response has none.
    #[error("volume content source missing")]
    NoContent,
}

impl UnusableVolume {
    /// Upstream's text for the deletion of the volume.
    pub fn cleanup(&self) -> &'static str {
        match self {
            Self::TooSmall { .. } => "Cleanup",
            Self::NoContent => "cleanup",
        }
    }
}

/// Input of a CreateVolume call.
#[derive(Clone, Debug, PartialEq)]
pub struct Job {
    /// The claim.
    pub claim: Arc<PersistentVolumeClaim>,
    /// The request, without secrets.
    pub request: CreateVolumeRequest,
    /// The secret that the request requires.
    pub secret: Option<SecretReference>,
    /// The source, if it still needs the finalizer before the driver is called.
    pub unheld: Option<SourceObject>,
    /// The scheduler may choose another node if this one has no capacity.
    pub may_reschedule: bool,
    /// The uid of the claim's class.
    pub class_uid: Option<String>,
    /// The PersistentVolume, without the fields of the response.
    volume: PersistentVolume,
    has_topology: bool,
}

impl Job {
    /// The job for this claim. The checks are in upstream's order, so that of several errors the same one is reported.
    pub fn new(
        claim: &Arc<PersistentVolumeClaim>,
        class: &StorageClass,
        world: &World,
        settings: &Settings,
    ) -> Result<Self, Refusal> {
        let empty = PersistentVolumeClaimSpec::default();
        let spec = claim.spec.as_ref().unwrap_or(&empty);
        let source = source::resolve(claim, world, settings.options)?;
        check_supported(spec, source.as_ref(), settings)?;
        let name = settings.volume_names.name(claim.metadata.uid.as_deref().unwrap_or_default());
        let parameters = class.parameters.clone().unwrap_or_default();
        let block = spec.volume_mode.as_deref() == Some("Block");
        let fs_type = match fs_type(&parameters)? {
            unset if unset.is_empty() => settings.default_fs_type.clone(),
            named => named,
        };
        let capacity_range = Some(CapacityRange { required_bytes: requested_bytes(spec)?, limit_bytes: 0 });
        let volume_capabilities = capabilities(spec, class, block, &fs_type, settings)?;
        let Content { source: content, unheld } = match &source {
            Some(from) => source::content(from, claim, class, world, settings.options)?,
            None => Content::default(),
        };
        let selected = claim.metadata.annotations.as_ref().and_then(|all| all.get(SELECTED_NODE));
        let has_topology = settings.driver.has_topology();
        let accessibility = if has_topology {
            let allowed = class.allowed_topologies.as_deref().unwrap_or_default();
            let claim_name = claim.metadata.name.as_deref().unwrap_or_default();
            let selected = selected.map(String::as_str);
            topology::requirement(
                settings.topology(world),
                &settings.driver.name,
                claim_name,
                allowed,
                selected,
                settings.options,
            )?
        } else {
            None
        };
        let secret = |purpose| secrets::reference(purpose, &parameters, &name, claim);
        let provision_secret = secret(Purpose::Provision)?;
        let fs_type = (!block && !fs_type.is_empty()).then_some(fs_type);
        let source = csi_source(spec, settings, fs_type, secret)?;
        let modify_secret = secret(Purpose::ControllerModify)?;
        let driver_parameters = driver_parameters(&parameters, claim, &name, settings)?;
        let attributes = attributes(spec, world, settings)?;
        let request = CreateVolumeRequest {
            name: name.clone(),
            volume_content_source: content,
            capacity_range,
            volume_capabilities,
            parameters: driver_parameters,
            accessibility_requirements: accessibility,
            mutable_parameters: attributes.and_then(|class| class.parameters.clone()).unwrap_or_default(),
            ..CreateVolumeRequest::default()
        };
        let volume = PersistentVolume {
            metadata: ObjectMeta {
                name: Some(name),
                annotations: Some(annotations(settings, provision_secret.as_ref(), modify_secret.as_ref())),
                finalizers: Some(vec![PROVISIONER_FINALIZER.to_owned()]),
                ..ObjectMeta::default()
            },
            spec: Some(PersistentVolumeSpec {
                access_modes: spec.access_modes.clone(),
                claim_ref: Some(reference(&**claim)),
                csi: Some(source),
                mount_options: class.mount_options.clone(),
                persistent_volume_reclaim_policy: class.reclaim_policy.clone(),
                storage_class_name: class.metadata.name.clone(),
                volume_mode: spec.volume_mode.clone(),
                volume_attributes_class_name: attributes.and_then(|class| class.metadata.name.clone()),
                ..PersistentVolumeSpec::default()
            }),
            status: None,
        };
        let may_reschedule = has_topology && selected.is_some();
        Ok(Self {
            claim: claim.clone(),
            request,
            secret: provision_secret,
            unheld,
            may_reschedule,
            class_uid: class.metadata.uid.clone(),
            volume,
            has_topology,
        })
    }

    /// The PersistentVolume from the driver's response. A capacity of 0 means that the driver does not know it.
    pub fn finish(&self, answer: Volume) -> Result<PersistentVolume, UnusableVolume> {
        let expected = self.request.capacity_range.as_ref().map_or(0, |range| range.required_bytes);
        let got = if answer.capacity_bytes == 0 { expected } else { answer.capacity_bytes };
        if got < expected {
            return Err(UnusableVolume::TooSmall { got, expected });
        }
        if self.request.volume_content_source.is_some() && answer.content_source.is_none() {
            return Err(UnusableVolume::NoContent);
        }
        let mut volume = self.volume.clone();
        if let Some(spec) = &mut volume.spec {
            spec.capacity = Some(BTreeMap::from([("storage".to_owned(), quantity::from_bytes(got))]));
            if self.has_topology {
                spec.node_affinity = topology::node_affinity(&answer.accessible_topology);
            }
            if let Some(csi) = &mut spec.csi {
                csi.volume_handle = answer.volume_id;
                csi.volume_attributes.get_or_insert_default().extend(answer.volume_context);
            }
        }
        Ok(volume)
    }
}

/// The volume's fields for later calls, without those of the response.
fn csi_source(
    spec: &PersistentVolumeClaimSpec,
    settings: &Settings,
    fs_type: Option<String>,
    secret: impl Fn(Purpose) -> Result<Option<SecretReference>, SecretNameError>,
) -> Result<CSIPersistentVolumeSource, SecretNameError> {
    Ok(CSIPersistentVolumeSource {
        driver: settings.driver.name.clone(),
        fs_type,
        controller_publish_secret_ref: secret(Purpose::ControllerPublish)?,
        node_stage_secret_ref: secret(Purpose::NodeStage)?,
        node_publish_secret_ref: secret(Purpose::NodePublish)?,
        controller_expand_secret_ref: secret(Purpose::ControllerExpand)?,
        node_expand_secret_ref: secret(Purpose::NodeExpand)?,
        read_only: is_read_only(spec, settings).then_some(true),
        volume_attributes: Some(BTreeMap::from([(IDENTITY.to_owned(), settings.identity.clone())])),
        ..CSIPersistentVolumeSource::default()
    })
}

/// Annotations: the provisioner, and the secrets for deletion and modification. An empty value records that
/// none is needed for deletion.
fn annotations(
    settings: &Settings,
    provision: Option<&SecretReference>,
    modify: Option<&SecretReference>,
) -> BTreeMap<String, String> {
    let mut annotations = BTreeMap::from([(PROVISIONED_BY.to_owned(), settings.driver.name.clone())]);
    annotate(&mut annotations, DELETION_SECRET_NAME, DELETION_SECRET_NAMESPACE, provision);
    if modify.is_some() {
        annotate(&mut annotations, MODIFY_SECRET_NAME, MODIFY_SECRET_NAMESPACE, modify);
    }
    annotations
}

/// Whether the volume is read-only for every call. Upstream: `pvReadOnly` in `Provision`, whatever the driver's
/// capabilities.
fn is_read_only(spec: &PersistentVolumeClaimSpec, settings: &Settings) -> bool {
    let modes = spec.access_modes.as_deref().unwrap_or_default();
    settings.options.controller_publish_readonly && matches!(modes, [only] if only == "ReadOnlyMany")
}

/// Checks that the driver has the capabilities that the claim requires, and that nothing else excludes a new volume.
fn check_supported(
    spec: &PersistentVolumeClaimSpec,
    source: Option<&DataSource>,
    settings: &Settings,
) -> Result<(), Refusal> {
    Incapable::check(&settings.driver)?;
    if let Some(source) = source {
        source::check(source, &settings.driver)?;
    }
    if attributes_class(spec).is_some() && !settings.driver.can(Rpc::ModifyVolume) {
        return Err(Refusal::NoModify);
    }
    if spec.selector.is_some() {
        return Err(Refusal::Selector);
    }
    Ok(())
}

/// The name of the claim's VolumeAttributesClass.
fn attributes_class(spec: &PersistentVolumeClaimSpec) -> Option<&String> {
    spec.volume_attributes_class_name.as_ref().filter(|name| !name.is_empty())
}

/// The claim's VolumeAttributesClass.
fn attributes<'w>(
    spec: &PersistentVolumeClaimSpec,
    world: &'w World,
    settings: &Settings,
) -> Result<Option<&'w VolumeAttributesClass>, Refusal> {
    let Some(name) = attributes_class(spec) else { return Ok(None) };
    let class = world.attributes_classes.named(name);
    let class = class.ok_or_else(|| Refusal::NoAttributesClass(name.clone()))?;
    if class.driver_name != settings.driver.name {
        let (class, driver) = (name.clone(), class.driver_name.clone());
        let expected = settings.driver.name.clone();
        return Err(Refusal::ForeignAttributesClass { class, driver, expected });
    }
    Ok(Some(class))
}

fn requested_bytes(spec: &PersistentVolumeClaimSpec) -> Result<i64, Refusal> {
    let requests = spec.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let request = requests.and_then(|requests| requests.get("storage"));
    let size = request.and_then(quantity::bytes);
    size.ok_or_else(|| Refusal::Size(request.map(|request| request.0.clone()).unwrap_or_default()))
}

/// One capability per access mode, since each is requested separately.
fn capabilities(
    spec: &PersistentVolumeClaimSpec,
    class: &StorageClass,
    block: bool,
    fs_type: &str,
    settings: &Settings,
) -> Result<Vec<VolumeCapability>, AccessModeError> {
    let multi_writer = settings.driver.can(Rpc::SingleNodeMultiWriter);
    let mount_options = class.mount_options.as_deref().unwrap_or_default();
    let modes = spec.access_modes.as_deref().unwrap_or_default();
    let capability = |mode: &String| {
        let mode = access_mode(std::slice::from_ref(mode), multi_writer)?;
        Ok(volume_capability(mode, block, fs_type, mount_options))
    };
    modes.iter().map(capability).collect()
}

/// The file system to create: the reserved parameter, or the older plain one in any case.
fn fs_type(parameters: &BTreeMap<String, String>) -> Result<String, Refusal> {
    let is_fs_type =
        |key: &str| key.eq_ignore_ascii_case("fstype") || key.strip_prefix(RESERVED) == Some("fstype");
    let mut found = parameters.iter().filter(|(key, _)| is_fs_type(key)).map(|(_, value)| value.clone());
    let first = found.next().unwrap_or_default();
    if found.next().is_some() { Err(Refusal::TwoFsTypes) } else { Ok(first) }
}

/// The class's parameters for the driver and, with `--extra-create-metadata`, the names of the claim and
/// volume.
fn driver_parameters(
    parameters: &BTreeMap<String, String>,
    claim: &PersistentVolumeClaim,
    volume: &str,
    settings: &Settings,
) -> Result<BTreeMap<String, String>, Refusal> {
    let mut passed = BTreeMap::new();
    for (key, value) in parameters {
        match key.strip_prefix(RESERVED) {
            None => drop(passed.insert(key.clone(), value.clone())),
            Some("fstype") => {}
            Some(_) if is_secret_parameter(key) => {}
            Some(_) => return Err(Refusal::UnknownParameter(key.clone())),
        }
    }
    if settings.options.extra_create_metadata {
        let meta = &claim.metadata;
        for (key, value) in [
            ("pvc/name", meta.name.as_deref()),
            ("pvc/namespace", meta.namespace.as_deref()),
            ("pv/name", Some(volume)),
        ] {
            passed.insert(format!("{RESERVED}{key}"), value.unwrap_or_default().to_owned());
        }
    }
    Ok(passed)
}

/// Records a secret for later calls; empty values mean none, as upstream writes it.
fn annotate(
    annotations: &mut BTreeMap<String, String>,
    name_key: &str,
    namespace_key: &str,
    secret: Option<&SecretReference>,
) {
    let name = secret.and_then(|secret| secret.name.clone()).unwrap_or_default();
    let namespace = secret.and_then(|secret| secret.namespace.clone()).unwrap_or_default();
    annotations.insert(name_key.to_owned(), name);
    annotations.insert(namespace_key.to_owned(), namespace);
}
