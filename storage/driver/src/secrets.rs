//! Secrets that calls must carry, if the driver is configured so: which call, which key, which value.
//!
//! Drivers of real storage use them to log in. This one only compares them, which shows whether the secrets
//! that a class names arrive with each call. No value is ever part of a message or of debug output.

use std::{collections::BTreeMap, fmt, str::FromStr};

use crate::{
    error::{Error, Result},
    fields,
};

/// A call that carries secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// CreateVolume.
    CreateVolume,
    /// DeleteVolume.
    DeleteVolume,
    /// ControllerPublishVolume.
    ControllerPublishVolume,
    /// ControllerUnpublishVolume.
    ControllerUnpublishVolume,
    /// ValidateVolumeCapabilities.
    ValidateVolumeCapabilities,
    /// ControllerExpandVolume.
    ControllerExpandVolume,
    /// ControllerModifyVolume.
    ControllerModifyVolume,
    /// CreateSnapshot.
    CreateSnapshot,
    /// DeleteSnapshot.
    DeleteSnapshot,
    /// ListSnapshots.
    ListSnapshots,
    /// GetSnapshot.
    GetSnapshot,
    /// CreateVolumeGroupSnapshot.
    CreateVolumeGroupSnapshot,
    /// DeleteVolumeGroupSnapshot.
    DeleteVolumeGroupSnapshot,
    /// GetVolumeGroupSnapshot.
    GetVolumeGroupSnapshot,
    /// GetMetadataAllocated.
    GetMetadataAllocated,
    /// GetMetadataDelta.
    GetMetadataDelta,
    /// NodeStageVolume.
    NodeStageVolume,
    /// NodePublishVolume.
    NodePublishVolume,
    /// NodeExpandVolume.
    NodeExpandVolume,
}

impl Call {
    const ALL: [Self; 19] = [
        Self::CreateVolume,
        Self::DeleteVolume,
        Self::ControllerPublishVolume,
        Self::ControllerUnpublishVolume,
        Self::ValidateVolumeCapabilities,
        Self::ControllerExpandVolume,
        Self::ControllerModifyVolume,
        Self::CreateSnapshot,
        Self::DeleteSnapshot,
        Self::ListSnapshots,
        Self::GetSnapshot,
        Self::CreateVolumeGroupSnapshot,
        Self::DeleteVolumeGroupSnapshot,
        Self::GetVolumeGroupSnapshot,
        Self::GetMetadataAllocated,
        Self::GetMetadataDelta,
        Self::NodeStageVolume,
        Self::NodePublishVolume,
        Self::NodeExpandVolume,
    ];

    /// The name in the CSI specification.
    fn name(self) -> String {
        format!("{self:?}")
    }
}

/// A secret that a call must carry; without a call, every call that can carry secrets.
#[derive(Clone, PartialEq, Eq)]
pub struct RequiredSecret {
    call: Option<Call>,
    key: String,
    value: String,
}

impl fmt::Debug for RequiredSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RequiredSecret")
            .field("call", &self.call)
            .field("key", &self.key)
            .finish_non_exhaustive()
    }
}

impl FromStr for RequiredSecret {
    type Err = String;

    /// Parses `KEY=VALUE` or `CALL:KEY=VALUE`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (left, value) = text.split_once('=').ok_or("expected [CALL:]KEY=VALUE")?;
        let (call, key) = match left.split_once(':') {
            None => (None, left),
            Some((name, key)) => {
                let call = Call::ALL.into_iter().find(|call| call.name() == name).ok_or_else(|| {
                    format!("{name:?} is not one of {}", Call::ALL.map(Call::name).join(", "))
                })?;
                (Some(call), key)
            }
        };
        if key.is_empty() {
            return Err("the key is empty; expected [CALL:]KEY=VALUE".to_owned());
        }
        Ok(Self { call, key: key.to_owned(), value: value.to_owned() })
    }
}

/// All required secrets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Secrets(Vec<RequiredSecret>);

impl Secrets {
    /// Requires these secrets.
    pub fn new(required: Vec<RequiredSecret>) -> Self {
        Self(required)
    }

    /// Whether a call carries the required secrets. A missing key is an invalid argument, a wrong value a
    /// failed authentication (CSI specification, "Secrets Requirements" and "Error Scheme").
    pub(crate) fn check(&self, call: Call, sent: &BTreeMap<String, String>) -> Result<()> {
        fields::large_map("secrets", sent)?;
        for required in self.0.iter().filter(|required| required.call.is_none_or(|only| only == call)) {
            match sent.get(&required.key) {
                Some(value) if *value == required.value => {}
                Some(_) => {
                    return Err(Error::Unauthenticated(format!(
                        "secrets: the value of {:?} is not the one that {} requires",
                        required.key,
                        call.name()
                    )));
                }
                None => {
                    let reason = format!("{:?} is missing, which {} requires", required.key, call.name());
                    return Err(Error::invalid("secrets", reason));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    #[test]
    fn required_secrets_must_be_present_and_are_never_reported() {
        let required = ["user=admin", "NodeStageVolume:key=hunter2"].map(|text| text.parse().unwrap());
        let secrets = Secrets::new(required.to_vec());
        assert!(!format!("{secrets:?}").contains("admin") && !format!("{secrets:?}").contains("hunter2"));
        let check = |call, pairs: &[(&str, &str)]| {
            let sent = pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            secrets.check(call, &sent).map_err(|error| {
                assert!(!error.to_string().contains("hunter2") && !error.to_string().contains("guess"));
                error.code()
            })
        };
        assert_eq!(check(Call::CreateVolume, &[("user", "admin")]), Ok(()));
        assert_eq!(check(Call::CreateVolume, &[]), Err(Code::InvalidArgument));
        assert_eq!(check(Call::CreateVolume, &[("user", "guess")]), Err(Code::Unauthenticated));
        assert_eq!(check(Call::NodeStageVolume, &[("user", "admin")]), Err(Code::InvalidArgument));
        let both = [("user", "admin"), ("key", "hunter2"), ("more", "x")];
        assert_eq!(check(Call::NodeStageVolume, &both), Ok(()));
        for bad in ["user", "=x", "NoCall:user=x", "NodeStageVolume:=x"] {
            bad.parse::<RequiredSecret>().unwrap_err();
        }
    }
}
