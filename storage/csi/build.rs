//! Compiles `proto/csi.proto` to Rust with protox, so that no `protoc` is needed.

use std::{env, error::Error, fs, path::Path};

use prost::Message;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=proto/csi.proto");
    let files = protox::compile(["csi.proto"], ["proto"])?;
    let descriptors = Path::new(&env::var("OUT_DIR")?).join("csi.descriptors");
    fs::write(descriptors, files.encode_to_vec())?;
    tonic_prost_build::configure()
        // What k8s-openapi uses for string maps, so that contexts and parameters pass through unchanged.
        .btree_map(".")
        // CSI lets a plugin leave RPCs out; those answer `Unimplemented`.
        .generate_default_stubs(true)
        .compile_fds(files)?;
    Ok(())
}
