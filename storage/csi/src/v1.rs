//! The generated messages, clients and servers of package `csi.v1`; the source is `proto/csi.proto`.

#![expect(
    missing_docs,
    unused_qualifications,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    reason = "generated code, which follows its generator's rules"
)]

include!("generated/csi.v1.rs");
