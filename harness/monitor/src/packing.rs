//! An object in few bytes: its JSON, with the parts that most objects have replaced by numbers.

use serde::{Serialize, de::DeserializeOwned};

/// Precedes the number of a phrase; no byte of UTF-8.
const MARK: u8 = 0xFF;

/// Parts of the JSON of claims, volumes, pods and attachments that wait for nothing, in the order of their fields. Each
/// starts with a quotation mark; of those that start alike, the longest comes first. Objects without these parts are
/// only larger.
const PHRASES: [&str; 40] = [
    r#""apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"#,
    r#""apiVersion":"v1","kind":"PersistentVolume","metadata":{"#,
    r#""apiVersion":"v1","kind":"Pod","metadata":{"#,
    r#""apiVersion":"storage.k8s.io/v1","kind":"VolumeAttachment","metadata":{"#,
    r#""annotations":{"volume.kubernetes.io/storage-provisioner":""#,
    r#""annotations":{"pv.kubernetes.io/provisioned-by":""#,
    r#""annotations":{"#,
    r#""volume.kubernetes.io/storage-provisioner":""#,
    r#""volume.kubernetes.io/selected-node":""#,
    r#""},"creationTimestamp":""#,
    r#""creationTimestamp":""#,
    r#"","name":""#,
    r#"","namespace":""#,
    r#"","resourceVersion":""#,
    r#"","uid":""#,
    r#""name":""#,
    // Claims.
    r#""},"spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":""#,
    r#""}},"storageClassName":""#,
    r#"","volumeMode":"Filesystem","volumeName":""#,
    r#""},"status":{"capacity":{"storage":""#,
    r#""},"phase":"Bound"}}"#,
    // Volumes.
    r#""},"spec":{"capacity":{"storage":""#,
    r#""},"claimRef":{"name":""#,
    r#""},"csi":{"driver":""#,
    r#"","volumeHandle":""#,
    r#""},"persistentVolumeReclaimPolicy":"Delete","storageClassName":""#,
    r#"","volumeMode":"Filesystem"},"status":{"phase":"Bound"}}"#,
    // Attachments.
    r#""},"spec":{"attacher":""#,
    r#"","nodeName":""#,
    r#"","source":{"persistentVolumeName":""#,
    r#""}},"status":{"attached":true}}"#,
    // Pods.
    r#""},"spec":{"containers":[{"name":""}],"nodeName":""#,
    r#"","volumes":[{"name":""#,
    r#"","persistentVolumeClaim":{"claimName":""#,
    r#""}}]},"status":{"conditions":[{"lastTransitionTime":""#,
    r#""lastTransitionTime":""#,
    r#"","status":"True","type":"PodReadyToStartContainers"}"#,
    r#"","status":"True","type":"PodScheduled"}"#,
    r#"","status":"True","type":"Ready"}"#,
    r#""containerStatuses":[{"image":"","imageID":"","name":"","ready":false,"restartCount":0,"state":{"running":{}}}]"#,
];

/// Packs an object. Those of Kubernetes have string keys only, so that this cannot fail.
pub(crate) fn pack(object: &impl Serialize) -> Box<[u8]> {
    let json = serde_json::to_vec(object).unwrap_or_default();
    let mut packed = Vec::with_capacity(json.len());
    let mut rest = &json[..];
    while let Some(first) = rest.first() {
        let length = match phrase_at(rest) {
            Some((number, phrase)) => {
                packed.extend([MARK, number]);
                phrase.len()
            }
            None => {
                packed.push(*first);
                1
            }
        };
        rest = &rest[length..];
    }
    packed.into_boxed_slice()
}

/// The phrase that a text starts with, and its number.
fn phrase_at(text: &[u8]) -> Option<(u8, &'static str)> {
    if text.first() != Some(&b'"') {
        return None;
    }
    // The second byte decides for nearly all of them.
    let second = text.get(1);
    let matches = |phrase: &str| phrase.as_bytes().get(1) == second && text.starts_with(phrase.as_bytes());
    (0..).zip(PHRASES).find(|(_, phrase)| matches(phrase))
}

/// The reverse of [`pack`], also for a type with fewer fields.
pub(crate) fn unpack<K: DeserializeOwned>(packed: &[u8]) -> Option<K> {
    let mut json = Vec::with_capacity(packed.len() * 4);
    let mut bytes = packed.iter();
    while let Some(byte) = bytes.next() {
        if *byte == MARK {
            let phrase = PHRASES.get(usize::from(*bytes.next()?))?;
            json.extend_from_slice(phrase.as_bytes());
        } else {
            json.push(*byte);
        }
    }
    serde_json::from_slice(&json).ok()
}

#[cfg(test)]
mod tests {
    use claimcheck_informer::testing::{bind, claim, volume};
    use k8s_openapi::api::core::v1::PersistentVolumeClaim;
    use serde_json::{Value, json};

    use super::*;
    use crate::trim::Trim;

    #[test]
    fn a_phrase_is_not_hidden_by_an_earlier_one() {
        for (number, phrase) in (0..).zip(PHRASES) {
            assert_eq!(phrase_at(phrase.as_bytes()), Some((number, phrase)));
        }
    }

    #[test]
    fn any_text_is_the_same_unpacked() {
        for text in ["", "\u{ff}", "ä\"\\\"name\\\":\\\"", "\",\"name\":\"", "𐍈\u{0}"] {
            let value = json!({ "name": text, "annotations": { text: [text, 1, null] } });
            assert_eq!(unpack::<Value>(&pack(&value)), Some(value), "{text:?}");
        }
    }

    #[test]
    fn a_bound_claim_is_small() {
        let (mut claim, mut volume) = (claim("c", "fast", "1Gi"), volume("v", "fast", "1Gi"));
        bind(&mut claim, &mut volume);
        let claim = claim.trimmed();
        let (packed, json) = (pack(&claim), serde_json::to_vec(&claim).unwrap());
        assert!(packed.len() * 2 < json.len(), "{} of {}", packed.len(), json.len());
        assert_eq!(unpack::<PersistentVolumeClaim>(&packed), Some(claim));
    }
}
