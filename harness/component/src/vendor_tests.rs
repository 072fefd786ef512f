//! The arguments of sidecars in the manifests of vendors, as they can be copied to `claimcheck controller`. Variables of
//! the pod are replaced as by the kubelet.

use claimcheck_controllers::Name;

use crate::{check, gates};

/// A vendor.
struct Vendor {
    /// The file in the vendor's repository, as of August 2026.
    source: &'static str,
    sidecars: &'static [(Name, &'static str)],
}

const VENDORS: &[Vendor] = &[
    Vendor {
        source: "kubernetes-sigs/aws-ebs-csi-driver deploy/kubernetes/base/controller.yaml",
        sidecars: &[
            (
                Name::Provisioner,
                "--timeout=60s --csi-address=/var/lib/csi/sockets/pluginproxy/csi.sock --v=2 \
                 --feature-gates=Topology=true --extra-create-metadata --leader-election=true --default-fstype=ext4 \
                 --kube-api-qps=20 --kube-api-burst=100 --worker-threads=100 --retry-interval-max=30m",
            ),
            (
                Name::Attacher,
                "--timeout=6m --csi-address=/var/lib/csi/sockets/pluginproxy/csi.sock --v=2 --leader-election=true \
                 --kube-api-qps=20 --kube-api-burst=100 --worker-threads=100 --retry-interval-max=5m \
                 --feature-gates=MutableCSINodeAllocatableCount=true",
            ),
            (
                Name::Snapshotter,
                "--csi-address=/var/lib/csi/sockets/pluginproxy/csi.sock --leader-election=true --v=2 \
                 --extra-create-metadata --kube-api-qps=20 --kube-api-burst=100 --worker-threads=100 \
                 --retry-interval-max=30m",
            ),
            (
                Name::Resizer,
                "--timeout=60s --extra-modify-metadata --csi-address=/var/lib/csi/sockets/pluginproxy/csi.sock --v=2 \
                 --handle-volume-inuse-error=false --leader-election=true --kube-api-qps=20 --kube-api-burst=100 \
                 --workers=100 --retry-interval-max=30m",
            ),
        ],
    },
    Vendor {
        source: "kubernetes-sigs/aws-ebs-csi-driver charts/aws-ebs-csi-driver with metrics and elections",
        sidecars: &[
            (
                Name::Provisioner,
                "--timeout=60s --csi-address=/var/lib/csi/sockets/pluginproxy/csi.sock --v=7 \
                 --feature-gates=Topology=true --extra-create-metadata --leader-election=true \
                 --leader-election-lease-duration=15s --leader-election-renew-deadline=10s \
                 --leader-election-retry-period=5s --default-fstype=ext4 --http-endpoint=0.0.0.0:3302",
            ),
            (Name::Attacher, "--v=7 --leader-election=false --http-endpoint=0.0.0.0:3303"),
        ],
    },
    Vendor {
        source: "kubernetes-sigs/azuredisk-csi-driver deploy/csi-azuredisk-controller.yaml",
        sidecars: &[
            (
                Name::Provisioner,
                "--feature-gates=Topology=true,VolumeAttributesClass=true --csi-address=/csi/csi.sock --v=2 \
                 --timeout=30s --leader-election --leader-election-namespace=kube-system --worker-threads=100 \
                 --extra-create-metadata=true --strict-topology=true --kube-api-qps=50 --kube-api-burst=100 \
                 --retry-interval-max=30m",
            ),
            (
                Name::Attacher,
                "-v=2 -csi-address=/csi/csi.sock -timeout=1200s -leader-election \
                 --leader-election-namespace=kube-system -worker-threads=1000 -kube-api-qps=200 -kube-api-burst=400",
            ),
            (
                Name::Snapshotter,
                "-csi-address=/csi/csi.sock -leader-election --leader-election-namespace=kube-system --v=2 \
                 --timeout=1200s --extra-create-metadata=true --retry-interval-max=30m --worker-threads=250 \
                 --kube-api-qps=100 --kube-api-burst=200",
            ),
            (
                Name::Resizer,
                "-csi-address=/csi/csi.sock -v=2 -leader-election --leader-election-namespace=kube-system \
                 -handle-volume-inuse-error=false \
                 -feature-gates=RecoverVolumeExpansionFailure=true,VolumeAttributesClass=true -timeout=240s \
                 --retry-interval-max=30m",
            ),
        ],
    },
    Vendor {
        source: "kubernetes-sigs/gcp-compute-persistent-disk-csi-driver deploy/kubernetes/base/controller/controller.yaml",
        sidecars: &[
            (
                Name::Provisioner,
                "--v=5 --csi-address=/csi/csi.sock --feature-gates=Topology=true --http-endpoint=:22011 \
                 --leader-election-namespace=gce-pd-csi-driver --timeout=250s --extra-create-metadata \
                 --leader-election --default-fstype=ext4 --controller-publish-readonly=true",
            ),
            (
                Name::Attacher,
                "--v=5 --csi-address=/csi/csi.sock --http-endpoint=:22012 --leader-election \
                 --leader-election-namespace=gce-pd-csi-driver --timeout=250s",
            ),
            (
                Name::Resizer,
                "--v=5 --csi-address=/csi/csi.sock --http-endpoint=:22013 --leader-election \
                 --leader-election-namespace=gce-pd-csi-driver --handle-volume-inuse-error=false",
            ),
            (
                Name::Snapshotter,
                "--v=5 --csi-address=/csi/csi.sock --metrics-address=:22014 --leader-election \
                 --leader-election-namespace=gce-pd-csi-driver --timeout=300s",
            ),
        ],
    },
    Vendor {
        source: "kubernetes-sigs/vsphere-csi-driver manifests/vanilla/vsphere-csi-driver.yaml",
        sidecars: &[
            (
                Name::Attacher,
                "--v=4 --timeout=300s --csi-address=/csi/csi.sock --leader-election \
                 --leader-election-lease-duration=120s --leader-election-renew-deadline=60s \
                 --leader-election-retry-period=30s --kube-api-qps=100 --kube-api-burst=100 --worker-threads=100",
            ),
            (
                Name::Resizer,
                "--v=4 --timeout=300s --handle-volume-inuse-error=false --csi-address=/csi/csi.sock \
                 --kube-api-qps=100 --kube-api-burst=100 --leader-election --leader-election-lease-duration=120s \
                 --leader-election-renew-deadline=60s --leader-election-retry-period=30s \
                 --feature-gates=RecoverVolumeExpansionFailure=false",
            ),
            (
                Name::Provisioner,
                "--v=4 --timeout=300s --csi-address=/csi/csi.sock --kube-api-qps=100 --kube-api-burst=100 \
                 --leader-election --leader-election-lease-duration=120s --leader-election-renew-deadline=60s \
                 --leader-election-retry-period=30s --default-fstype=ext4 --feature-gates=Topology=true \
                 --strict-topology",
            ),
            (
                Name::Snapshotter,
                "--v=4 --kube-api-qps=100 --kube-api-burst=100 --timeout=300s --csi-address=/csi/csi.sock \
                 --leader-election --leader-election-lease-duration=120s --leader-election-renew-deadline=60s \
                 --leader-election-retry-period=30s --extra-create-metadata",
            ),
        ],
    },
    Vendor {
        source: "topolvm/topolvm charts/topolvm/templates/controller/deployment.yaml",
        sidecars: &[
            (
                Name::Provisioner,
                "--csi-address=/run/topolvm/csi-topolvm.sock --feature-gates=Topology=true --leader-election \
                 --leader-election-namespace=topolvm-system --http-endpoint=:9809 --enable-capacity \
                 --capacity-ownerref-level=2",
            ),
            (
                Name::Resizer,
                "--csi-address=/run/topolvm/csi-topolvm.sock --leader-election \
                 --leader-election-namespace=topolvm-system --http-endpoint=:9810",
            ),
            (
                Name::Snapshotter,
                "--csi-address=/run/topolvm/csi-topolvm.sock --leader-election \
                 --leader-election-namespace=topolvm-system --http-endpoint=:9811",
            ),
        ],
    },
    Vendor {
        source: "kubevirt/csi-driver deploy/controller-tenant/base/deploy.yaml",
        sidecars: &[
            (
                Name::Provisioner,
                "--csi-address=/var/lib/csi/sockets/pluginproxy/csi.sock --default-fstype=ext4 --v=5 --timeout=3m \
                 --retry-interval-max=1m",
            ),
            (
                Name::Attacher,
                "--csi-address=/var/lib/csi/sockets/pluginproxy/csi.sock --v=5 --timeout=3m --retry-interval-max=1m",
            ),
            (Name::Snapshotter, "--v=3 --csi-address=/csi/csi.sock --timeout=3m"),
            (Name::Resizer, "-csi-address=/csi/csi.sock -v=5 -timeout=3m -handle-volume-inuse-error=false"),
        ],
    },
    Vendor {
        source: "longhorn/longhorn-manager csi/deployment.go",
        sidecars: &[
            (
                Name::Attacher,
                "--v=2 --csi-address=/csi/csi.sock --timeout=1m50s --retry-interval-max=1m --leader-election \
                 --leader-election-namespace=longhorn-system --kube-api-qps=50 --kube-api-burst=100 \
                 --http-endpoint=:8000",
            ),
            (
                Name::Provisioner,
                "--v=2 --csi-address=/csi/csi.sock --timeout=1m50s --leader-election \
                 --leader-election-namespace=longhorn-system --default-fstype=ext4 --extra-create-metadata=true \
                 --enable-capacity --capacity-ownerref-level=2 --immediate-topology=false --kube-api-qps=50 \
                 --kube-api-burst=100 --http-endpoint=:8000",
            ),
            // One flag is there twice.
            (
                Name::Resizer,
                "--v=2 --csi-address=/csi/csi.sock --timeout=1m50s --retry-interval-max=1m --leader-election \
                 --leader-election-namespace=longhorn-system --leader-election-namespace=longhorn-system \
                 --kube-api-qps=50 --kube-api-burst=100 --http-endpoint=:8000 --handle-volume-inuse-error=false \
                 --feature-gates=RecoverVolumeExpansionFailure=false",
            ),
            (
                Name::Snapshotter,
                "--v=2 --csi-address=/csi/csi.sock --timeout=1m50s --leader-election \
                 --leader-election-namespace=longhorn-system --kube-api-qps=50 --kube-api-burst=100 \
                 --http-endpoint=:8000 --feature-gates=CSIVolumeGroupSnapshot=true",
            ),
        ],
    },
    Vendor {
        source: "kubernetes/cloud-provider-openstack manifests/cinder-csi-plugin/cinder-csi-controllerplugin.yaml",
        sidecars: &[
            (
                Name::Attacher,
                "--csi-address=/var/lib/csi/sockets/pluginproxy/csi.sock --timeout=3m --leader-election=true \
                 --default-fstype=ext4",
            ),
            (
                Name::Provisioner,
                "--csi-address=/var/lib/csi/sockets/pluginproxy/csi.sock --timeout=3m --default-fstype=ext4 \
                 --feature-gates=Topology=true --extra-create-metadata --leader-election=true",
            ),
            (
                Name::Snapshotter,
                "-v=2 --csi-address=/var/lib/csi/sockets/pluginproxy/csi.sock --timeout=3m --extra-create-metadata \
                 --leader-election=true",
            ),
            (
                Name::Resizer,
                "-v=2 --csi-address=/var/lib/csi/sockets/pluginproxy/csi.sock --timeout=3m \
                 --handle-volume-inuse-error=false --leader-election=true",
            ),
        ],
    },
    Vendor {
        source: "kubernetes-csi/external-snapshotter deploy/kubernetes, external-provisioner deploy/kubernetes",
        sidecars: &[
            (Name::SnapshotController, "--v=5 --leader-election=true"),
            (Name::Snapshotter, "--v=5 --csi-address=unix:///csi/csi.sock --leader-election=false"),
            (
                Name::Provisioner,
                "--csi-address=/csi/csi.sock --leader-election --enable-capacity --capacity-ownerref-level=2 \
                 --http-endpoint=:8080",
            ),
        ],
    },
];

fn parsed(name: Name, args: &str) -> Result<(), String> {
    let words = ["controller", name.as_str()].into_iter().chain(args.split_whitespace());
    check(&words.map(str::to_owned).collect::<Vec<_>>()).map_err(|error| error.to_string())
}

#[test]
fn the_arguments_of_vendors_are_accepted() {
    for vendor in VENDORS {
        for (name, args) in vendor.sidecars {
            parsed(*name, args).unwrap_or_else(|error| panic!("{}, {name}: {error}", vendor.source));
        }
    }
}

/// Flags that few set, and how others are written.
#[test]
fn rare_flags_are_accepted() {
    for (name, args) in [
        (Name::Provisioner, "--prevent-volume-mode-conversion=false --snapshot-orphan-sweep-interval=0"),
        (Name::Provisioner, "--enable-pprof --automaxprocs --metrics-path=/m --logging-format=json"),
        (Name::Provisioner, "--master=https://10.0.0.1:6443 --kubeconfig= --vmodule=a=2,b=3"),
        (
            Name::Provisioner,
            "--feature-gates=Topology=true --feature-gates=CrossNamespaceVolumeDataSource=true,",
        ),
        (Name::Provisioner, "--capacity-ownerref-level -1 --enable-capacity -v 5"),
        (Name::Attacher, "-max-grpc-log-length=-1 -resync=10m -log-flush-frequency 5s"),
        (Name::Resizer, "-resync-period=10m -feature-gates AnnotateFsResize=true -log-text-split-stream"),
        (Name::SnapshotController, "-retry-crd-interval-max=1m -prevent-volume-mode-conversion"),
        (Name::SnapshotController, "--feature-gates=ReleaseLeaderElectionOnExit=false"),
        (Name::NodeLifecycle, "--node-monitor-grace-period=40s"),
        (Name::Scheduler, "--feature-gates=StorageCapacityScoring=true"),
    ] {
        parsed(name, args).unwrap_or_else(|error| panic!("{name} {args}: {error}"));
    }
}

#[test]
fn what_no_named_controller_has_is_refused() {
    for (name, args, text) in [
        (
            Name::Binder,
            "--timeout=1m",
            "--timeout is a flag of provisioner, attacher, resizer and snapshotter",
        ),
        (Name::Binder, "--csi-address=/s", "has no effect on binder"),
        (Name::Attacher, "-enable-capacity", "--enable-capacity is a flag of provisioner"),
        (Name::Attacher, "-enable-pprof", "--enable-pprof is a flag of provisioner"),
        (Name::Attacher, "-feature-gates=Topology=true", "unrecognized feature gate: Topology"),
        (Name::Resizer, "-feature-gates=AnnotateFsResize=false", "always have this feature"),
        (Name::Provisioner, "-time=1s", "'--timeout'"),
        (Name::Provisioner, "--metrics-address=:1 --http-endpoint=:2", "cannot be used with"),
        (Name::Provisioner, "--csi-address=tcp://127.0.0.1:1", "unix:///csi/csi.sock"),
        (Name::Provisioner, "--csi-address=csi.sock", "unix:///"),
        (Name::Provisioner, "--logging-format=xml", "text, json"),
        (Name::Provisioner, "--metrics-path=metrics", "such as /metrics"),
        (Name::Provisioner, "extra", "there is no controller \"extra\""),
    ] {
        let error = parsed(name, args).expect_err(args);
        assert!(error.contains(text), "{name} {args}: {error}");
    }
    // One of several has it.
    let several = ["controller", "binder", "resizer", "--timeout=1m"].map(str::to_owned);
    check(&several).unwrap_or_else(|error| panic!("{error}"));
    assert!(gates::feature_gates(&[Name::Binder]).contains(&gates::UNUSED_SINCE_TIME));
}
