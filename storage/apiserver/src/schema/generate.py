#!/usr/bin/env python3
"""Writes types.txt: the fields of the kinds that are served, read from the sources of k8s-openapi and Kubernetes.

    python3 generate.py ~/.cargo/registry/src/*/k8s-openapi-0.29.0/src/v1_37 k8s.io > types.txt

Fields, their JSON names, their types and which of them must be there are taken from the structs, how lists
merge from the `DeepMerge` implementations, and their numbers in protobuf from the tags of Kubernetes' Go structs:
`k8s.io` is a folder with checkouts of kubernetes/api, apimachinery and apiextensions-apiserver of the same version. The tables
below add the missing information.
"""

import re
import sys
from functools import cache
from pathlib import Path

ROOT, GO = Path(sys.argv[1]), Path(sys.argv[2])
KINDS = {
    "admissionregistration": "MutatingWebhookConfiguration ValidatingWebhookConfiguration",
    "authentication": "SelfSubjectReview TokenRequest TokenReview",
    "authorization": "LocalSubjectAccessReview SelfSubjectAccessReview SelfSubjectRulesReview SubjectAccessReview",
    "autoscaling": "Scale",
    "autoscaling/v2": "HorizontalPodAutoscaler",
    "batch": "CronJob Job",
    "core": "Binding ConfigMap Endpoints Event LimitRange Namespace Node PersistentVolume PersistentVolumeClaim Pod "
    "PodTemplate ReplicationController ResourceQuota Secret Service ServiceAccount",
    "coordination": "Lease",
    "discovery": "EndpointSlice",
    "events": "Event",
    "networking": "Ingress IngressClass NetworkPolicy",
    "node": "RuntimeClass",
    "policy": "Eviction PodDisruptionBudget",
    "apps": "ControllerRevision DaemonSet Deployment ReplicaSet StatefulSet",
    "rbac": "ClusterRole ClusterRoleBinding Role RoleBinding",
    "scheduling": "PriorityClass",
    "apiextensions": "CustomResourceDefinition",
    "storage": "CSIDriver CSINode CSIStorageCapacity StorageClass VolumeAttachment VolumeAttributesClass",
}
META = "apimachinery/pkg/apis/meta/v1"
EXTENSIONS = "apiextensions_apiserver/pkg/apis/apiextensions/v1"
# Scalars, and what is no struct.
SCALARS = {
    "std::string::String": "string", "bool": "bool", "i32": "int32", "i64": "int64", "f64": "double",
    "crate::ByteString": "bytes",
    "crate::apimachinery::pkg::api::resource::Quantity": "quantity",
    "crate::apimachinery::pkg::util::intstr::IntOrString": "intstr",
    "crate::apimachinery::pkg::apis::meta::v1::Time": "time",
    "crate::apimachinery::pkg::apis::meta::v1::MicroTime": "microtime",
    "crate::apimachinery::pkg::apis::meta::v1::FieldsV1": "any",
    "crate::apiextensions_apiserver::pkg::apis::apiextensions::v1::JSON": "any",
    "crate::apimachinery::pkg::runtime::RawExtension": "any",
}
# Types that are written as one of two types in JSON.
UNIONS_OF_SCHEMAS = {
    "JSONSchemaPropsOrArray": "[]", "JSONSchemaPropsOrBool": "bool", "JSONSchemaPropsOrStringArray": "[string]",
}
# Scalars with a zero value. The others are messages in protobuf.
ZEROS = ["string", "bool", "int32", "int64", "bytes"]
# `+structType=atomic`.
ATOMIC = """ConfigMapKeySelector EndpointAddress EndpointPort EvictionResponder FileKeySelector LabelSelector
LocalObjectReference NodeSelector NodeSelectorTerm ObjectFieldSelector ObjectReference OwnerReference
ResourceFieldSelector RoleRef ScopeSelector SecretKeySelector SecretReference ServiceBackendPort Subject
TopologySelectorTerm TypedLocalObjectReference""".split()
# Fields of these types with `+structType=granular`.
GRANULAR = {("PersistentVolumeSpec", "claimRef")}
# Lists with more key fields than the one by which strategic merge patches find an item.
KEYS = {
    ("Container", "ports"): "containerPort,protocol",
    ("EphemeralContainer", "ports"): "containerPort,protocol",
    ("PodSpec", "topologySpreadConstraints"): "topologyKey,whenUnsatisfiable",
    ("ServiceSpec", "ports"): "port,protocol",
    ("PodVolumeHealth", "healthConditions"): "status,reason",
    ("VolumeHealthStatus", "healthConditions"): "status,reason",
}
# Lists that are atomic, though strategic merge patches merge them.
PATCHED = {("PodStatus", "hostIPs"): "ip", ("JobStatus", "conditions"): "type"}
# Lists of scalars that strategic merge patches merge too.
PATCHED_SETS = {("ObjectMeta", "finalizers"), ("NodeSpec", "podCIDRs")}
# Lists that they replace, though they have keys.
REPLACED = {("ResourceRequirements", "claims"), ("VolumeResourceRequirements", "claims"),
            ("CustomResourceDefinitionStatus", "conditions")}
# Lists of unions: a strategic merge patch removes the fields of their items that it does not retain.
UNIONS = {("PodSpec", "volumes"), ("PodSpec", "resourceClaims")}
# Values of keys that are left out.
DEFAULTS = {("ContainerPort", "protocol"): "TCP", ("ServicePort", "protocol"): "TCP"}

# Fields that are not required upstream, since they have a default: `+default=""`.
OPTIONAL = {(name, "name") for name in """ConfigMapEnvSource ConfigMapKeySelector ConfigMapProjection
ConfigMapVolumeSource LocalObjectReference SecretEnvSource SecretKeySelector SecretProjection""".split()}
# Fields that are required upstream, though k8s-openapi has an `Option`, or omits it for metadata.
REQUIRED = {("api/core/v1", "Event", "metadata"), ("api/events/v1", "Event", "eventTime")}

# Kinds of meta/v1 that no OpenAPI document of Kubernetes describes, as k8s-openapi is made from these.
UNDESCRIBED = {
    "PartialObjectMetadata": ["  metadata ObjectMeta #1"],
    "PartialObjectMetadataList": ["  items! [PartialObjectMetadata] #2", "  metadata ListMeta #1"],
}

HEADER = """# The fields of everything that is served, as of Kubernetes 1.37. Made by generate.py; do not edit.
# A type's fields stand under it; `!` marks those that must be there; [x] is a list, {x} a map. Lists are
# replaced as a whole unless they are a `set`, or a `map` by the keys named; `patch` names the key by which
# strategic merge patches find an item, `retain` that they may say what of it stays, `default` what a key is
# that is left out, and `enum` the values of a string, or of the items of a list. An `atomic` type or map is
# replaced as a whole too, but not where it is `granular`. #3 is the
# number of a field in protobuf, #2.3 a number in the message at #2, which JSON inlines; with `?` the zero value means
# that it is not set. The kind and apiVersion of an object have no number, since the envelope contains them. x|bool is
# an x or a boolean, x|[] an x or a list of x, x|[string] an x or a list of strings."""


def source(folder, rust_name):
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", rust_name).lower()
    path = ROOT / folder / f"{snake}.rs"
    if not path.exists():
        path = next(p for p in (ROOT / folder).glob("*.rs") if f"pub struct {rust_name} " in p.read_text())
    return path.read_text()


@cache
def go_structs(folder):
    """By struct of a Go package, of each field: whether it is a pointer or list, the type, the JSON tag, the number."""
    structs = {}
    for path in (GO / folder.replace("_", "-")).glob("*.go"):
        for name, body in re.findall(r"^type (\w+) struct \{\n(.*?)^\}", path.read_text(), re.M | re.S):
            structs[name] = re.findall(
                r'^\t(?:\w+ +)?([*[]?)([^\s`]+) +`json:"([^",]*)([^"]*)"[^`]*?protobuf:"\w+,(\d+),', body, re.M)
    return structs


@cache
def enums(folder):
    """By type of a Go package with `+enum`: its values."""
    values = {}
    text = "\n".join(path.read_text() for path in (GO / folder.replace("_", "-")).glob("types.go"))
    for match in re.finditer(r"^type (\w+) string$", text, re.M):
        name, comment = match[1], text[:match.start()].rpartition("\n\n")[2]
        # Values that are constants of other packages are left out, and so all of that type.
        if re.search(r"^// ?\+enum$", comment, re.M) and not re.search(rf"= {name}\([^\"]", text):
            pattern = rf'^[ \t]*(?:const )?\w+[ \t]+(?:{name}[ \t]*=[ \t]*|=[ \t]+{name}\()"([^"]*)"'
            values[name] = sorted(set(re.findall(pattern, text, re.M)))
    return values


def enum_fields(folder, name):
    """By JSON name of the fields of a Go struct with values of such a type: the values."""
    known = enums(folder) | {f"v1.{name}": values for name, values in enums("api/core/v1").items()}
    fields = {}
    for _, go, json, _, _ in go_structs(folder).get(name, []):
        found = known.get(go.removeprefix("]"))
        if found and json:
            fields[json] = found
    return fields


def numbers(folder, name):
    """By JSON name: the number in protobuf, and whether Go has no other form of an unset field than zero."""
    structs = go_structs(folder)
    found = {}
    for pointer, go, json, options, number in structs.get(name, []):
        fields = [(pointer, go, json, options, number)]
        if not json:
            fields = [(*field, f"{number}.{place}") for *field, place in structs[go]]
        for pointer, _, json, options, place in fields:
            assert json, f"{name} inlines {go}, which inlines another struct"
            found[json] = f"#{place}" + ("?" if pointer != "*" and "omitempty" in options else "")
    return found


class Writer:
    def __init__(self):
        self.packages = {}
        self.folders = {"meta": META}
        self.todo = []
        for group, kinds in KINDS.items():
            folder = EXTENSIONS if group == "apiextensions" else f"api/{group}" if "/" in group else f"api/{group}/v1"
            self.todo += [(folder, kind) for kind in kinds.split()]
        self.todo += [(META, "DeleteOptions"), (META, "Status")]
        self.packages[META] = dict(UNDESCRIBED)
        # An object without fields, which k8s-openapi has as a value.
        self.packages[EXTENSIONS] = {"CustomResourceSubresourceStatus": []}

    def type_of(self, rust, folder):
        if rust in SCALARS:
            return SCALARS[rust]
        if match := re.fullmatch(r"std::vec::Vec<(.*)>", rust):
            return f"[{self.type_of(match[1], folder)}]"
        if match := re.fullmatch(r"std::collections::BTreeMap<std::string::String, (.*)>", rust):
            return "{" + self.type_of(match[1], folder) + "}"
        if match := re.fullmatch(r"(?:std::boxed::)?Box<(.*)>", rust):
            return self.type_of(match[1], folder)
        *place, name = rust.removeprefix("crate::").split("::")
        if name in UNIONS_OF_SCHEMAS:
            self.todo.append((EXTENSIONS, "JSONSchemaProps"))
            return f"JSONSchemaProps|{UNIONS_OF_SCHEMAS[name]}"
        place = "/".join(place)
        self.todo.append((place, name))
        return name if place == folder else f"{self.alias(place)}.{name}"

    def alias(self, folder):
        if folder in (META, EXTENSIONS):
            return {META: "meta", EXTENSIONS: "apiextensions"}[folder]
        _, group, version = folder.split("/")
        alias = group if version == "v1" else group + version
        self.folders[alias] = folder
        return alias

    def struct(self, folder, name):
        text = source(folder, name)
        body = re.search(r"pub struct \w+ \{\n(.*?)\n\}", text, re.S)
        json = dict((field, name) for name, field in re.findall(r'"([^"]+)" => Field::Key_(\w+)', text))
        merge = re.search(r"impl crate::DeepMerge.*?\n\}", text, re.S)[0]
        lines = []
        places, values = numbers(folder, name), enum_fields(folder, name)
        if "impl crate::Resource for" in text:
            lines += ["  apiVersion string", "  kind string"]
        for field, rust in re.findall(r"^    pub (\w+): (.*),$", body[1] if body else "", re.M):
            optional = re.fullmatch(r"Option<(.*)>", rust)
            kind = self.type_of(optional[1] if optional else rust, folder)
            name_ = json[field]
            must = "" if optional or field == "metadata" or (name, name_) in OPTIONAL else "!"
            if (folder, name, name_) in REQUIRED:
                must = "!"
            how = re.search(rf"merge_strategies::(\w+)::(\w+)\(\s*&mut self\.{field},(.*?)\n        (?=\S|\}})",
                            merge + "\n        }", re.S)
            words = [f"  {name_}{must}", kind]
            if how and how[1] == "list" and how[2] == "set":
                words.append("set")
                if (name, name_) in PATCHED_SETS:
                    words.append("patch")
            key = re.search(r"lhs\.(\w+) == rhs", how[0]) if how else None
            # Claim templates are atomic upstream; k8s-openapi merges them by a field of their metadata.
            if how and how[1] == "list" and how[2] == "map" and key:
                key = key[1]
                item = kind.strip("[]")
                package, _, item = item.rpartition(".")
                place = self.folders[package] if package else folder
                names = dict((f, n) for n, f in re.findall(r'"([^"]+)" => Field::Key_(\w+)', source(place, item)))
                key = names[key]
                keys = KEYS.get((name, name_), key)
                if (name, name_) in PATCHED:
                    words.append(f"patch={key}")
                elif (name, name_) in REPLACED:
                    words.append(f"map={keys}")
                else:
                    words += [f"map={keys}", f"patch={key}"]
                if (name, name_) in UNIONS:
                    words.append("retain")
            if how and how[1] == "map" and how[2] == "atomic":
                words.append("atomic")
            if (name, name_) in GRANULAR:
                words.append("granular")
            if values.get(name_):
                words.append(f"enum={','.join(values[name_])}")
            if (name, name_) in DEFAULTS:
                words.append(f"default={DEFAULTS[name, name_]}")
            place = places.get(name_)
            # No client sets attestations, which are new in 1.37.
            if place and name_ != "attestations":
                words.append(place if kind in ZEROS else place.rstrip("?"))
            elif name_ not in ("apiVersion", "kind", "attestations"):
                print(f"{name}.{name_} has no number: the checkouts are older than k8s-openapi", file=sys.stderr)
            lines.append(" ".join(words))
        return lines

    def write(self):
        while self.todo:
            folder, name = self.todo.pop()
            types = self.packages.setdefault(folder, {})
            if name not in types:
                types[name] = []
                types[name] = self.struct(folder, name)
        print(HEADER)
        for folder in sorted(self.packages):
            print(f"package {self.alias(folder)} io.k8s.{folder.replace('/', '.').replace('_', '-')}")
            for name, lines in sorted(self.packages[folder].items()):
                print(name + (" atomic" if name in ATOMIC else ""))
                print("\n".join(sorted(lines))) if lines else None


Writer().write()
