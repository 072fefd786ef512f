//! Messages of CSI as JSON, with the field names of csi.proto: rows name fields, so that no method needs code of its own.

use anyhow::{Context, Result};
use prost::Message as _;
use prost_reflect::{
    DescriptorPool, DeserializeOptions, DynamicMessage, MessageDescriptor, SerializeOptions,
};
use serde_json::Value;

/// The descriptions of all messages.
#[derive(Clone, Debug)]
pub(crate) struct Messages(DescriptorPool);

/// The messages of a method.
#[derive(Clone, Debug)]
pub(crate) struct Method {
    pub name: String,
    pub request: MessageDescriptor,
    pub answer: MessageDescriptor,
}

impl Messages {
    /// Those of CSI.
    ///
    /// # Errors
    /// They are not those that the build has compiled.
    pub fn csi() -> Result<Self> {
        DescriptorPool::decode(claimcheck_csi::DESCRIPTORS).map(Self).context("csi.proto cannot be decoded")
    }

    /// The method with this path, such as `/csi.v1.Controller/CreateVolume`.
    pub fn method(&self, path: &str) -> Option<Method> {
        let (service, name) = path.strip_prefix('/')?.split_once('/')?;
        let service = self.0.get_service_by_name(service)?;
        let method = service.methods().find(|method| method.name() == name)?;
        Some(Method { name: name.to_owned(), request: method.input(), answer: method.output() })
    }

    /// The names of all methods.
    #[cfg(test)]
    pub fn names(&self) -> Vec<String> {
        let methods = self.0.services().flat_map(|service| service.methods().collect::<Vec<_>>());
        methods.map(|method| method.name().to_owned()).collect()
    }
}

/// A message as JSON.
///
/// # Errors
/// The bytes are no such message.
pub(crate) fn decode(descriptor: &MessageDescriptor, bytes: &[u8]) -> Result<Value> {
    let message = DynamicMessage::decode(descriptor.clone(), bytes)?;
    let options = SerializeOptions::new().use_proto_field_name(true).stringify_64_bit_integers(false);
    Ok(message.serialize_with_options(serde_json::value::Serializer, &options)?)
}

/// The bytes of a message.
///
/// # Errors
/// The JSON is no such message: the row sets a field that does not exist, or to a value of another type.
pub(crate) fn encode(descriptor: &MessageDescriptor, value: &Value) -> Result<Vec<u8>> {
    let options = DeserializeOptions::new().deny_unknown_fields(true);
    let message = DynamicMessage::deserialize_with_options(descriptor.clone(), value, &options);
    let message = message.with_context(|| format!("the row makes an invalid {}", descriptor.name()))?;
    Ok(message.encode_to_vec())
}
