//! Compiles the plugin registration protocol. protox is a compiler in Rust, so no protoc is needed.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto/pluginregistration.proto");
    let files = protox::compile(["proto/pluginregistration.proto"], ["proto"])?;
    tonic_prost_build::configure().compile_fds(files)?;
    Ok(())
}
