//! Runs one operation on one volume. Its input is all in the [`Work`], so it can run while the states change,
//! and its result is one [`Outcome`].
//!
//! Upstream: `pkg/kubelet/volumemanager/reconciler`, `pkg/volume/util/operationexecutor`.

use std::{collections::BTreeMap, error::Error, io, path::PathBuf, sync::Arc, time::Duration};

use claimcheck_csi::{tap::code_name, v1::node_service_capability::rpc::Type as Capability};
use claimcheck_informer::{EventRecorder, Informer, response};
use claimcheck_model::{Meter, ObjectKey};
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{Api, Client};
use tonic::Code;

use crate::{
    actual::Outcome,
    drivers::RegisteredDriver,
    effects::Host,
    layout::Layout,
    reconciler::Growth,
    volumes::{
        CsiVolume, DriverPolicy, EmptyDir, Form, FsGroup, HostPath, Lifecycle, Plugin, PodMount, PodUid,
        VolumeKey,
        content::{self, Filling, PayloadError, TokenError},
        csi, empty_dir,
        expand::{Expanded, Failed, expand},
        host_path::HostPathError,
    },
};

/// Input of a mount or unmount operation.
#[derive(Clone, Debug)]
pub enum Work {
    /// Attach the volume, which is not the node's task.
    Attach,
    /// Publish a ReadWriteOncePod volume in a second pod, which always fails.
    PublishAgain,
    /// NodeStageVolume.
    Stage {
        /// The driver to call.
        driver: Arc<RegisteredDriver>,
        /// The volume.
        volume: Box<CsiVolume>,
        /// The publish context of the attachment.
        publish_context: BTreeMap<String, String>,
        /// The `fsGroup` of the pod for which it is staged, for a driver that applies it itself.
        fs_group: Option<FsGroup>,
    },
    /// NodePublishVolume, then the group's ownership, and NodeExpandVolume if the volume is to be expanded.
    Publish {
        /// The driver to call.
        driver: Arc<RegisteredDriver>,
        /// The volume's key.
        key: VolumeKey,
        /// The volume.
        volume: Box<CsiVolume>,
        /// The publish context of the attachment.
        publish_context: BTreeMap<String, String>,
        /// The pod's requirements.
        mount: PodMount,
        /// The driver's policy (CSIDriver).
        policy: DriverPolicy,
        /// It is mounted already, and stays so if this fails.
        again: bool,
        /// The target size of an expansion before the pod uses it.
        growth: Option<Growth>,
    },
    /// NodeExpandVolume.
    Expand {
        /// The driver to call.
        driver: Arc<RegisteredDriver>,
        /// The volume's key.
        key: VolumeKey,
        /// The volume.
        volume: Box<CsiVolume>,
        /// A pod that has it mounted.
        mount: PodMount,
        /// The target size.
        growth: Growth,
    },
    /// NodeUnpublishVolume.
    Unpublish {
        /// The driver to call.
        driver: Arc<RegisteredDriver>,
        /// The volume's id.
        handle: String,
        /// The pod.
        pod: PodUid,
        /// The directory's name in the pod.
        directory: String,
        /// Its form in containers.
        form: Form,
    },
    /// NodeUnstageVolume.
    Unstage {
        /// The driver to call.
        driver: Arc<RegisteredDriver>,
        /// The volume's id.
        handle: String,
        /// Its form in containers.
        form: Form,
    },
    /// Create an emptyDir.
    MakeEmptyDir {
        /// The volume.
        key: VolumeKey,
        /// Its medium and size.
        volume: EmptyDir,
        /// The pod's requirements.
        mount: PodMount,
    },
    /// Check that a hostPath is of the expected type.
    CheckHostPath(HostPath),
    /// Create or update files from objects.
    Fill {
        /// The volume.
        key: VolumeKey,
        /// The pod's requirements.
        mount: PodMount,
        /// The content.
        filling: Filling,
    },
    /// Remove a pod-local volume with its content.
    Remove {
        /// The volume.
        key: VolumeKey,
        /// The pod.
        pod: PodUid,
        /// The directory's name in the pod.
        directory: String,
    },
}

/// Why an operation failed. The texts of calls are upstream's, since users search for them.
#[derive(Debug, thiserror::Error)]
pub enum OperationError {
    /// The driver returned an error, or no response.
    #[error("rpc error: code = {} desc = {}", code_name(.0.code()), .0.message())]
    Rpc(Box<tonic::Status>),
    /// The host failed before the driver was called.
    #[error("cannot prepare {}: {source}", path.display())]
    Prepare {
        /// The path.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// The driver succeeded, but the host's part failed.
    #[error("cannot finish {}: {source}", path.display())]
    Finish {
        /// The path.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// A secret that the volume refers to cannot be read. Upstream: `getCredentialsFromSecret` in
    /// `pkg/volume/csi/csi_util.go`, and its callers.
    #[error(
        "fetching {reference} {secret} failed: kubernetes.io/csi: failed to find the secret {} in the namespace {} with \
         error: {}",
        secret.name, secret.namespace, response::message(source)
    )]
    Secret {
        /// The field of the volume.
        reference: &'static str,
        /// The secret.
        secret: ObjectKey,
        /// The API server's error.
        source: Box<kube::Error>,
    },
    /// A value of a secret cannot be passed to the driver: CSI's secrets are texts. Upstream's gRPC client fails for
    /// it, too.
    #[error("secret {secret} cannot be passed to the driver: the value of key {key:?} is not UTF-8")]
    SecretValue {
        /// The secret.
        secret: ObjectKey,
        /// The key of the value.
        key: String,
    },
    /// The node is to attach the volume itself, which it does not support. Upstream: `Attach` in
    /// `pkg/volume/csi/csi_attacher.go`.
    #[error("attaching volumes from the kubelet is not supported")]
    Attach,
    /// Another pod of this node has the volume. Upstream: `GenerateMountVolumeFunc` in
    /// `pkg/volume/util/operationexecutor/operation_generator.go`.
    #[error("volume uses the ReadWriteOncePod access mode and is already in use by another pod")]
    UsedByOther,
    /// The driver did not expand the volume.
    #[error(transparent)]
    Expand(#[from] Failed),
    /// The claim of an expanding volume cannot be read, or updated.
    #[error("claim {claim} cannot be updated: {}", response::message(source))]
    Claim {
        /// The claim.
        claim: ObjectKey,
        /// The API server's error.
        source: Box<kube::Error>,
    },
    /// A hostPath is not of the type in the pod's spec.
    #[error(transparent)]
    HostPath(#[from] HostPathError),
    /// The volume's content cannot be determined.
    #[error(transparent)]
    Payload(#[from] PayloadError),
    /// No token for the pod was issued.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The driver does not support volumes of this lifecycle mode. Upstream: `supportsVolumeLifecycleMode`.
    #[error(
        "volume mode {mode:?} not supported by driver {driver}: see its CSIDriver's volumeLifecycleModes"
    )]
    Lifecycle {
        /// The lifecycle mode.
        mode: Lifecycle,
        /// The driver.
        driver: String,
    },
}

impl OperationError {
    /// The state that the failure leaves.
    ///
    /// A driver's error is final unless its code means that the result is unknown, or that an earlier call for
    /// the volume may still be in progress. Upstream: `isFinalError` in `pkg/volume/csi/csi_client.go`.
    pub fn outcome(&self) -> Outcome {
        match self {
            // A status with a source was made by the transport: no answer came.
            Self::Rpc(status) if status.source().is_some() => Outcome::Unknown,
            Self::Rpc(status) => match status.code() {
                Code::Cancelled
                | Code::DeadlineExceeded
                | Code::Unavailable
                | Code::ResourceExhausted
                | Code::Aborted => Outcome::Unknown,
                _ => Outcome::Failed,
            },
            Self::Prepare { .. }
            | Self::Secret { .. }
            | Self::SecretValue { .. }
            | Self::Attach
            | Self::UsedByOther
            | Self::HostPath(_)
            | Self::Payload(_)
            | Self::Token(_)
            | Self::Lifecycle { .. } => Outcome::NotTried,
            // The volume is mounted, and not to be used yet.
            Self::Expand(_) | Self::Claim { .. } | Self::Finish { .. } => Outcome::Unknown,
        }
    }
}

impl From<tonic::Status> for OperationError {
    fn from(status: tonic::Status) -> Self {
        Self::Rpc(Box::new(status))
    }
}

/// Result of a successful operation.
#[derive(Clone, Copy, Debug, Default)]
pub struct OperationResult {
    /// The time after which it should be repeated, if ever.
    pub renew: Option<Duration>,
    /// Result of the expansion, if one was due.
    pub expanded: Option<Expanded>,
}

/// Executes operations.
pub struct Executor<H> {
    /// The kubelet's tree.
    pub layout: Layout,
    /// The host.
    pub host: Arc<H>,
    /// For secrets, tokens and claims.
    pub client: Client,
    /// The cache that written claims enter at once.
    pub informer: Informer,
    /// For events about pods.
    pub recorder: EventRecorder,
    /// The node's name.
    pub node: String,
    /// Metrics of operations.
    pub meter: Meter,
}

// By hand, since a derived one would ask for `H: Clone`.
impl<H> Clone for Executor<H> {
    fn clone(&self) -> Self {
        let Self { layout, host, client, informer, recorder, node, meter } = self;
        Self {
            layout: layout.clone(),
            host: host.clone(),
            client: client.clone(),
            informer: informer.clone(),
            recorder: recorder.clone(),
            node: node.clone(),
            meter: meter.clone(),
        }
    }
}

impl<H: Host> Executor<H> {
    /// Runs an operation.
    ///
    /// # Errors
    /// See [`OperationError::outcome`] for the resulting state.
    pub async fn run(&self, work: Work) -> Result<OperationResult, OperationError> {
        match work {
            Work::Attach => Err(OperationError::Attach),
            Work::PublishAgain => Err(OperationError::UsedByOther),
            Work::Stage { driver, volume, publish_context, fs_group } => {
                // A driver that does not stage needs none. Upstream: `MountDevice` in `pkg/volume/csi/csi_attacher.go`.
                let stages = driver.capabilities.has(Capability::StageUnstageVolume);
                let secret = volume.stage_secret.as_ref().filter(|_| stages);
                let secrets = self.secret("NodeStageSecretRef", secret).await?;
                csi::stage(self, &driver, &volume, publish_context, secrets, fs_group).await
            }
            Work::Publish { driver, key, volume, publish_context, mount, policy, again, growth } => {
                let secrets = self.secret("NodePublishSecretRef", volume.publish_secret.as_ref()).await?;
                let publish =
                    csi::Publish { key: &key, volume: &volume, mount: &mount, policy: &policy, again };
                csi::publish(self, &driver, publish, publish_context, secrets).await?;
                let Some(growth) = growth else { return Ok(OperationResult::default()) };
                return self.expand(&driver, &key, &volume, &mount, &growth).await;
            }
            Work::Expand { driver, key, volume, mount, growth } => {
                return self.expand(&driver, &key, &volume, &mount, &growth).await;
            }
            Work::Unpublish { driver, handle, pod, directory, form } => {
                csi::unpublish(self, &driver, &handle, &pod, &directory, &form).await
            }
            Work::Unstage { driver, handle, form } => csi::unstage(self, &driver, &handle, &form).await,
            Work::MakeEmptyDir { key, volume, mount } => empty_dir::make(self, &key, &volume, &mount).await,
            Work::CheckHostPath(path) => match tokio::task::spawn_blocking(move || path.check()).await {
                Ok(checked) => Ok(checked?),
                Err(error) => std::panic::resume_unwind(error.into_panic()),
            },
            Work::Fill { key, mount, filling } => {
                let renew = content::write(self, &key, &mount, &filling).await?;
                return Ok(OperationResult { renew, expanded: None });
            }
            Work::Remove { key, pod, directory } => self.remove(&key, &pod, &directory).await,
        }
        .map(|()| OperationResult::default())
    }

    /// Expands a volume that is mounted in a pod.
    async fn expand(
        &self,
        driver: &RegisteredDriver,
        key: &VolumeKey,
        volume: &CsiVolume,
        mount: &PodMount,
        growth: &Growth,
    ) -> Result<OperationResult, OperationError> {
        let secrets = self.secret("NodeExpandSecretRef", volume.expand_secret.as_ref()).await?;
        let path = self.layout.published(&mount.pod.uid, key, &mount.directory, &volume.form);
        let expanded = expand(self, driver, volume, growth, &path, secrets).await?;
        Ok(OperationResult { renew: None, expanded: Some(expanded) })
    }

    /// Removes a volume that the node created, with its content. A hostPath belongs to the node.
    async fn remove(&self, key: &VolumeKey, pod: &PodUid, directory: &str) -> Result<(), OperationError> {
        if key.plugin() == Plugin::HostPath {
            return Ok(());
        }
        let path = self.layout.pod_mount(pod, key, directory);
        let root = path.clone();
        let removed = self.blocking(move |host| {
            // The published directory of an unknown volume.
            host.unmount(&root.join("mount"))?;
            host.unmount(&root)?;
            host.remove_tree(&root)
        });
        removed.await.map_err(|source| OperationError::Finish { path, source })
    }

    /// Runs a longer piece of host work off the event loop.
    pub(crate) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&H) -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let host = self.host.clone();
        match tokio::task::spawn_blocking(move || work(&host)).await {
            Ok(result) => result,
            Err(error) => Err(io::Error::other(error)),
        }
    }

    /// The secret that this field of a volume refers to.
    async fn secret(
        &self,
        reference: &'static str,
        key: Option<&ObjectKey>,
    ) -> Result<BTreeMap<String, String>, OperationError> {
        let Some(key) = key else { return Ok(BTreeMap::new()) };
        let api: Api<Secret> = Api::namespaced(self.client.clone(), &key.namespace);
        let unread = |source| {
            let (secret, source) = (key.clone(), Box::new(source));
            OperationError::Secret { reference, secret, source }
        };
        let secret = api.get(&key.name).await.map_err(unread)?;
        texts(key, secret.data.unwrap_or_default())
    }
}

/// The values of a secret as CSI requires them.
fn texts(
    secret: &ObjectKey,
    data: BTreeMap<String, ByteString>,
) -> Result<BTreeMap<String, String>, OperationError> {
    let text = |(key, value): (String, ByteString)| match String::from_utf8(value.0) {
        Ok(value) => Ok((key, value)),
        // Without the error, which contains the value.
        Err(_) => Err(OperationError::SecretValue { secret: secret.clone(), key }),
    };
    data.into_iter().map(text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_that_is_no_text_is_not_handed_on() {
        let secret = ObjectKey::new("ns", "s");
        let data = |value: &[u8]| BTreeMap::from([("key".to_owned(), ByteString(value.to_vec()))]);
        let expected = BTreeMap::from([("key".to_owned(), "pässword".to_owned())]);
        assert_eq!(texts(&secret, data("pässword".as_bytes())).unwrap(), expected);
        let error = texts(&secret, data(b"p\xe4ssword")).unwrap_err();
        assert_eq!(error.outcome(), Outcome::NotTried);
        assert_eq!(
            error.to_string(),
            "secret ns/s cannot be passed to the driver: the value of key \"key\" is not UTF-8"
        );
    }

    #[test]
    fn a_missing_secret_is_reported_as_by_the_kubelet() {
        let status = kube::core::Status::failure("secrets \"s\" not found", "NotFound").with_code(404);
        let source = Box::new(kube::Error::Api(Box::new(status)));
        let secret = ObjectKey::new("ns", "s");
        let error = OperationError::Secret { reference: "NodePublishSecretRef", secret, source };
        assert_eq!(
            error.to_string(),
            "fetching NodePublishSecretRef ns/s failed: kubernetes.io/csi: failed to find the secret s in the namespace \
             ns with error: secrets \"s\" not found"
        );
    }

    #[test]
    fn which_errors_are_final() {
        let outcome = |code| OperationError::from(tonic::Status::new(code, "no")).outcome();
        for code in [Code::Internal, Code::InvalidArgument, Code::NotFound, Code::Unknown] {
            assert_eq!(outcome(code), Outcome::Failed, "{code:?}");
        }
        for code in [Code::DeadlineExceeded, Code::Unavailable, Code::Aborted, Code::Cancelled] {
            assert_eq!(outcome(code), Outcome::Unknown, "{code:?}");
        }
        let broken = tonic::Status::from_error(Box::new(io::Error::other("connection reset")));
        assert_eq!(OperationError::from(broken).outcome(), Outcome::Unknown);
        let error = OperationError::from(tonic::Status::internal("boom"));
        assert_eq!(error.to_string(), "rpc error: code = Internal desc = boom");
    }
}
