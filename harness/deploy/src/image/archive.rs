//! The archive: an OCI image layout (image-spec `image-layout.md`) that is also a docker-archive, like those that
//! docker writes since version 25.

use std::{
    fs::File,
    io::{self, BufWriter, Read, Write},
};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType};

use super::{
    ENTRYPOINT, Options,
    layer::{Layer, header, hex},
};

const CREATED: &str = "1970-01-01T00:00:00Z";
const PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

/// A content-addressed JSON document.
struct Blob {
    digest: String,
    bytes: Vec<u8>,
}

impl Blob {
    fn of(value: &Value) -> Self {
        let bytes = value.to_string().into_bytes();
        Self { digest: hex(&Sha256::digest(&bytes)), bytes }
    }

    fn descriptor(&self, media_type: &str) -> Value {
        descriptor(media_type, &self.digest, self.bytes.len() as u64)
    }
}

fn descriptor(media_type: &str, digest: &str, size: u64) -> Value {
    json!({ "mediaType": media_type, "digest": format!("sha256:{digest}"), "size": size })
}

/// Writes the archive; returns the digest of the image's manifest.
pub(super) fn write(options: &Options, layers: Vec<Layer>) -> io::Result<String> {
    let architecture = options.platform.architecture();
    let config = Blob::of(&json!({
        "architecture": architecture,
        "config": { "Entrypoint": [ENTRYPOINT], "Env": [PATH] },
        "created": CREATED,
        "history": [
            { "created": CREATED, "created_by": "root file system" },
            { "created": CREATED, "created_by": "claimcheck" },
        ],
        "os": "linux",
        "rootfs": {
            "type": "layers",
            "diff_ids": layers.iter().map(|layer| format!("sha256:{}", layer.digest)).collect::<Vec<_>>(),
        },
    }));
    let manifest = Blob::of(&json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": config.descriptor(CONFIG),
        "layers": layers.iter().map(|layer| descriptor(LAYER, &layer.digest, layer.size)).collect::<Vec<_>>(),
    }));
    let mut entry = manifest.descriptor(MANIFEST);
    entry["annotations"] = json!({
        // The fully qualified name by which containerd, and so a kubelet, finds the image.
        "io.containerd.image.name": full_name(&options.tag),
        "org.opencontainers.image.ref.name": options.tag.rsplit_once(':').map_or("latest", |(_, tag)| tag),
    });
    entry["platform"] = json!({ "architecture": architecture, "os": "linux" });
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [entry],
    });
    let blob = |digest: &str| format!("blobs/sha256/{digest}");
    let docker = json!([{
        "Config": blob(&config.digest),
        "RepoTags": [options.tag],
        "Layers": layers.iter().map(|layer| blob(&layer.digest)).collect::<Vec<_>>(),
    }]);

    let mut tar = Builder::new(BufWriter::new(File::create(&options.out)?));
    let mut add = |path: &str, size: u64, content: &mut dyn Read| {
        let mut header = header(EntryType::Regular, 0o644);
        header.set_size(size);
        tar.append_data(&mut header, path, content)
    };
    for layer in layers {
        add(&blob(&layer.digest), layer.size, &mut &layer.file)?;
    }
    for document in [&config, &manifest] {
        add(&blob(&document.digest), document.bytes.len() as u64, &mut document.bytes.as_slice())?;
    }
    let layout = json!({ "imageLayoutVersion": "1.0.0" });
    for (path, value) in [("index.json", &index), ("manifest.json", &docker), ("oci-layout", &layout)] {
        let text = value.to_string();
        add(path, text.len() as u64, &mut text.as_bytes())?;
    }
    tar.into_inner()?.flush()?;
    Ok(format!("sha256:{}", manifest.digest))
}

/// The name with its registry, as `docker.io/library/claimcheck:dev`.
fn full_name(tag: &str) -> String {
    match tag.split_once('/') {
        // A first part with a dot or a port is a registry.
        Some((registry, _)) if registry.contains(['.', ':']) || registry == "localhost" => tag.to_owned(),
        Some(_) => format!("docker.io/{tag}"),
        None => format!("docker.io/library/{tag}"),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_are_completed_as_docker_does() {
        for (tag, expected) in [
            ("claimcheck:dev", "docker.io/library/claimcheck:dev"),
            ("us/claimcheck:1", "docker.io/us/claimcheck:1"),
            ("quay.io/us/claimcheck:1", "quay.io/us/claimcheck:1"),
            ("localhost/claimcheck:dev", "localhost/claimcheck:dev"),
        ] {
            assert_eq!(super::full_name(tag), expected);
        }
    }
}
