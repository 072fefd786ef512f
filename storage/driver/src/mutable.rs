//! Parameters that ControllerModifyVolume changes, as a VolumeAttributesClass names them.
//!
//! They are performance limits that the driver only records: they are compared by ValidateVolumeCapabilities
//! and have no effect on the machine.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    error::{Error, Result},
    fields,
};

/// The mutable parameters of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mutable {
    /// Operations per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iops: Option<u32>,
    /// Throughput in MiB per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput: Option<u32>,
}

/// The maximum of both.
const MAX: u32 = 1_000_000;

impl Mutable {
    /// Whether no parameter was ever set.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// The same with the parameters of a request; parameters that it does not name stay.
    pub fn with(mut self, raw: &BTreeMap<String, String>) -> Result<Self> {
        fields::map("mutable_parameters", raw)?;
        for (key, value) in raw {
            let place = match key.as_str() {
                "iops" => &mut self.iops,
                "throughput" => &mut self.throughput,
                _ => {
                    let key = fields::clip(key);
                    let reason = format!("unknown key {key:?}; the keys are \"iops\", \"throughput\"");
                    return Err(Error::invalid("mutable_parameters", reason));
                }
            };
            let number = value.parse().ok().filter(|number| (1..=MAX).contains(number));
            *place = Some(number.ok_or_else(|| {
                let reason = format!("{key} {:?} is not a number from 1 to {MAX}", fields::clip(value));
                Error::invalid("mutable_parameters", reason)
            })?);
        }
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use tonic::Code;

    use super::*;

    fn with(pairs: &[(&str, &str)]) -> Result<Mutable> {
        Mutable { iops: Some(1), throughput: None }
            .with(&pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect())
    }

    #[test]
    fn strict_and_additive() {
        assert_eq!(with(&[]).unwrap(), Mutable { iops: Some(1), throughput: None });
        let both = with(&[("iops", "1000000"), ("throughput", "7")]).unwrap();
        assert_eq!(both, Mutable { iops: Some(MAX), throughput: Some(7) });
        for bad in
            [("iops", "0"), ("iops", "1000001"), ("throughput", "-1"), ("throughput", ""), ("iop", "1")]
        {
            assert_eq!(with(&[bad]).unwrap_err().code(), Code::InvalidArgument, "{bad:?}");
        }
    }
}
