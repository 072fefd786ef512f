//! Plugins of cloud providers that were part of Kubernetes.
//!
//! Stock controllers and kubelets replace them by CSI drivers, and translate their classes and volumes for these drivers
//! (`inTreePlugins` in csi-translation-lib's `translate.go`). That translation does not exist here: what depends on it is
//! refused with a message that names the driver.

/// The CSI driver that replaces an in-tree plugin; `None` if the plugin is not migrated.
pub fn migrated_to(plugin: &str) -> Option<&'static str> {
    let driver = match plugin {
        "kubernetes.io/aws-ebs" => "ebs.csi.aws.com",
        "kubernetes.io/azure-disk" => "disk.csi.azure.com",
        "kubernetes.io/azure-file" => "file.csi.azure.com",
        "kubernetes.io/cinder" => "cinder.csi.openstack.org",
        "kubernetes.io/gce-pd" => "pd.csi.storage.gke.io",
        "kubernetes.io/portworx-volume" => "pxd.portworx.com",
        "kubernetes.io/vsphere-volume" => "csi.vsphere.vmware.com",
        _ => return None,
    };
    Some(driver)
}
