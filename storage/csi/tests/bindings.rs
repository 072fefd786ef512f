//! The bindings in `generated` folders are what the protocol files give. After a change of a protocol file:
//! `CLAIMCHECK_WRITE_BINDINGS=1 cargo test --package claimcheck-csi --test bindings`.
//!
//! Users build no compiler of protocols that way. protox is one in Rust, so this test needs no `protoc`.

#![expect(clippy::unwrap_used, reason = "a test that cannot do its work shall end at once")]

use std::{env, fs, path::Path};

use prost::Message;

/// A protocol file and the bindings that are made from it; paths are relative to this crate.
struct Bindings {
    protocol: &'static str,
    folder: &'static str,
    code: &'static str,
    /// The encoded `FileDescriptorSet`, if programs read it.
    descriptors: Option<&'static str>,
}

const ALL: [Bindings; 2] = [
    Bindings {
        protocol: "proto/csi.proto",
        folder: "src/generated",
        code: "csi.v1.rs",
        descriptors: Some("csi.descriptors"),
    },
    Bindings {
        protocol: "../node/proto/pluginregistration.proto",
        folder: "../node/src/registration/generated",
        code: "pluginregistration.rs",
        descriptors: None,
    },
];

#[test]
fn bindings_are_those_of_the_protocol_files() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let writes = env::var_os("CLAIMCHECK_WRITE_BINDINGS").is_some();
    for bindings in &ALL {
        let folder = root.join(bindings.folder);
        for (name, expected) in generate(root, bindings) {
            let file = folder.join(name);
            if writes {
                fs::write(&file, &expected).unwrap();
            }
            let committed = fs::read(&file).unwrap_or_default();
            assert!(
                committed == expected,
                "{} is not what {} gives: run this test with CLAIMCHECK_WRITE_BINDINGS=1",
                file.display(),
                bindings.protocol
            );
        }
    }
}

/// The files that a protocol file gives: names and contents.
fn generate(root: &Path, bindings: &Bindings) -> Vec<(&'static str, Vec<u8>)> {
    let protocol = root.join(bindings.protocol);
    let files = protox::compile([&protocol], [protocol.parent().unwrap()]).unwrap();
    let out = tempfile::tempdir().unwrap();
    let descriptors = bindings.descriptors.map(|name| (name, files.encode_to_vec()));
    tonic_prost_build::configure()
        .out_dir(out.path())
        // What k8s-openapi uses for string maps, so that contexts and parameters pass through unchanged.
        .btree_map(".")
        // CSI lets a plugin leave RPCs out; those answer `Unimplemented`.
        .generate_default_stubs(true)
        .compile_fds(files)
        .unwrap();
    let code = fs::read(out.path().join(bindings.code)).unwrap();
    [(bindings.code, code)].into_iter().chain(descriptors).collect()
}
