//! Validation of a pod's volumes.
//!
//! Mirrors validateVolumes and the functions below it in pkg/apis/core/validation.

use std::collections::HashSet;

use serde_json::Value;

use super::{check_name, items};
use crate::admission::claim;
use crate::names;
use crate::quantity::Quantity;
use crate::status::FieldError;

/// What a path of the host may have to be.
pub const HOST_PATH_TYPES: [&str; 8] =
    ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
const MODE: &str = "must be a number between 0 and 0777 (octal), both inclusive";
/// Minimum lifetime of a token, in seconds.
const TOKEN_LIFE: i64 = 600;

/// All volumes of the spec at `path`, and the names of the valid ones: as upstream, containers can mount no others.
/// `pod` is the name of the pod, which a template has not.
pub fn validate<'a>(path: &str, pod: &str, spec: &'a Value) -> (Vec<FieldError>, HashSet<&'a str>) {
    let mut errors = Vec::new();
    let mut seen = HashSet::new();
    let mut valid = HashSet::new();
    for (index, volume) in items(&spec["volumes"]).enumerate() {
        let path = format!("{path}.volumes[{index}]");
        let before = errors.len();
        let volume_name = volume["name"].as_str().unwrap_or_default();
        errors.extend(check_name(&path, volume, &mut seen));
        let fields = volume.as_object().into_iter().flatten();
        let mut sources = fields.filter(|(field, value)| *field != "name" && !value.is_null());
        match sources.next() {
            None => errors.push(FieldError::required(&path, "must specify a volume type")),
            Some((kind, source)) => {
                let whole = Source { path: format!("{path}.{kind}"), source };
                // A template's claims have no name yet.
                let claim_name = format!("{pod}-{volume_name}");
                errors.extend(whole.validate(kind, &claim_name));
            }
        }
        errors.extend(sources.map(|(kind, _)| {
            FieldError::forbidden(format!("{path}.{kind}"), "may not specify more than 1 volume type")
        }));
        if errors.len() == before {
            valid.insert(volume_name);
        }
    }
    (errors, valid)
}

/// A source, and its path.
struct Source<'a> {
    path: String,
    source: &'a Value,
}

impl Source<'_> {
    /// `claim_name` is that of the claim of an ephemeral volume.
    fn validate(&self, kind: &str, claim_name: &str) -> Vec<FieldError> {
        match kind {
            "emptyDir" => self.empty_dir(),
            "hostPath" => self.host_path(),
            "secret" => [self.required("secretName"), self.files("items")].concat(),
            "configMap" => [self.required("name"), self.files("items")].concat(),
            "downwardAPI" => self.downward("items"),
            "projected" => self.projected(),
            "persistentVolumeClaim" => self.required("claimName"),
            "csi" => self.required("driver"),
            "ephemeral" => self.ephemeral(claim_name),
            // The rest is of drivers that no longer exist.
            _ => Vec::new(),
        }
    }

    fn at(&self, field: &str) -> String {
        format!("{}.{field}", self.path)
    }

    fn required(&self, field: &str) -> Vec<FieldError> {
        let unset = self.source[field].as_str().unwrap_or_default().is_empty();
        if unset { vec![FieldError::required(self.at(field), "")] } else { Vec::new() }
    }

    fn empty_dir(&self) -> Vec<FieldError> {
        let limit = self.source["sizeLimit"].as_str().and_then(|limit| limit.parse::<Quantity>().ok());
        let negative = limit.is_some_and(|limit| limit.nanos() < 0);
        let message = "SizeLimit field must be a valid resource quantity";
        if negative { vec![FieldError::forbidden(self.at("sizeLimit"), message)] } else { Vec::new() }
    }

    fn host_path(&self) -> Vec<FieldError> {
        let mut errors = self.required("path");
        errors.extend(without_backsteps(self.at("path"), &self.source["path"]));
        let kind = &self.source["type"];
        if !kind.is_null() && !HOST_PATH_TYPES.iter().any(|known| kind == known) {
            errors.push(FieldError::not_supported(self.at("type"), kind, &HOST_PATH_TYPES));
        }
        errors
    }

    /// The mode of all files, and the list of keys that become files.
    fn files(&self, list: &str) -> Vec<FieldError> {
        let mut errors = mode(self.at("defaultMode"), &self.source["defaultMode"]);
        for (index, item) in items(&self.source[list]).enumerate() {
            let item = Source { path: format!("{}[{index}]", self.at(list)), source: item };
            errors.extend(item.required("key"));
            errors.extend(item.file());
        }
        errors
    }

    /// A file's path and mode.
    fn file(&self) -> Vec<FieldError> {
        let path = &self.source["path"];
        let mut errors = self.required("path");
        if path.as_str().is_some_and(|path| path.starts_with('/')) {
            errors.push(FieldError::invalid(self.at("path"), path, "must be a relative path"));
        }
        errors.extend(without_backsteps(self.at("path"), path));
        if path
            .as_str()
            .is_some_and(|path| path.starts_with("..") && path.split('/').all(|step| step != ".."))
        {
            errors.push(FieldError::invalid(self.at("path"), path, "must not start with '..'"));
        }
        errors.extend(mode(self.at("mode"), &self.source["mode"]));
        errors
    }

    fn downward(&self, list: &str) -> Vec<FieldError> {
        let mut errors = mode(self.at("defaultMode"), &self.source["defaultMode"]);
        for (index, item) in items(&self.source[list]).enumerate() {
            let item = Source { path: format!("{}[{index}]", self.at(list)), source: item };
            errors.extend(item.file());
            match (item.source["fieldRef"].is_object(), item.source["resourceFieldRef"].is_object()) {
                (true, true) => {
                    let message = "fieldRef and resourceFieldRef can not be specified simultaneously";
                    errors.push(FieldError::invalid(&item.path, &"resource".into(), message));
                }
                (true, false) => {
                    let field = Source { path: item.at("fieldRef"), source: &item.source["fieldRef"] };
                    errors.extend(field.required("fieldPath"));
                }
                (false, true) => {
                    let field = Source {
                        path: item.at("resourceFieldRef"),
                        source: &item.source["resourceFieldRef"],
                    };
                    errors.extend(field.required("containerName"));
                    errors.extend(field.required("resource"));
                }
                (false, false) => {
                    let message = "one of fieldRef and resourceFieldRef is required";
                    errors.push(FieldError::required(&item.path, message));
                }
            }
        }
        errors
    }

    fn projected(&self) -> Vec<FieldError> {
        let mut errors = mode(self.at("defaultMode"), &self.source["defaultMode"]);
        let mut paths = HashSet::new();
        for (index, source) in items(&self.source["sources"]).enumerate() {
            let path = format!("{}[{index}]", self.at("sources"));
            let fields = source.as_object().into_iter().flatten();
            let kinds: Vec<_> = fields.filter(|(_, value)| !value.is_null()).collect();
            if kinds.len() > 1 {
                let message = "may not specify more than 1 volume type per source";
                errors.push(FieldError::forbidden(&path, message));
            }
            for (kind, source) in kinds {
                let below = Source { path: format!("{path}.{kind}"), source };
                errors.extend(match kind.as_str() {
                    "secret" | "configMap" => [below.required("name"), below.files("items")].concat(),
                    "downwardAPI" => below.downward("items"),
                    "serviceAccountToken" => below.token(),
                    _ => Vec::new(),
                });
                let items = items(&source["items"]).map(|item| &item["path"]);
                let files = items.chain((kind == "serviceAccountToken").then_some(&source["path"]));
                for file in files.filter(|file| file.as_str().is_some_and(|file| !file.is_empty())) {
                    if !paths.insert(file.as_str()) {
                        let message = "conflicting duplicate paths";
                        errors.push(FieldError::invalid(below.at("path"), file, message));
                    }
                }
            }
        }
        errors
    }

    fn token(&self) -> Vec<FieldError> {
        let mut errors = self.file();
        let seconds = &self.source["expirationSeconds"];
        if seconds.as_i64().is_some_and(|seconds| seconds < TOKEN_LIFE) {
            let message = "may not specify a duration less than 10 minutes";
            errors.push(FieldError::invalid(self.at("expirationSeconds"), seconds, message));
        }
        errors
    }

    fn ephemeral(&self, claim_name: &str) -> Vec<FieldError> {
        let template = &self.source["volumeClaimTemplate"];
        if template.is_null() {
            return vec![FieldError::required(self.at("volumeClaimTemplate"), "")];
        }
        let mut errors = claim::validate_spec(&template["spec"], &self.at("volumeClaimTemplate.spec"));
        if let Some(fault) = names::fault(claim_name, false) {
            let message = format!("PVC name \"{claim_name}\": {fault}");
            errors.push(FieldError::invalid(self.at("volumeClaimTemplate"), &claim_name.into(), message));
        }
        errors
    }
}

/// Rejects `..` as a component of a path.
pub fn without_backsteps(field: String, path: &Value) -> Vec<FieldError> {
    let back = path.as_str().unwrap_or_default().split('/').any(|step| step == "..");
    if back { vec![FieldError::invalid(field, path, "must not contain '..'")] } else { Vec::new() }
}

fn mode(field: String, mode: &Value) -> Vec<FieldError> {
    let wrong = mode.as_i64().is_some_and(|mode| !(0..=0o777).contains(&mode));
    if wrong { vec![FieldError::invalid(field, mode, MODE)] } else { Vec::new() }
}
