//! API objects of kinds that are missing from k8s-openapi, since CRDs define them.

/// The kinds of one API group, all in one version. From one list: the struct of each kind, and its implementation of an
/// API object. Objects are serialized with their kind, as in k8s-openapi, and deserialized without checking it.
macro_rules! kinds {
    ($group:expr, $api_version:literal; $(
        $(#[$doc:meta])*
        $kind:ident in $plural:literal, $scope:ident {
            $($(#[$must_doc:meta])* $must:ident as $must_json:literal: $must_type:ty,)*
            ..
            $($(#[$may_doc:meta])* $may:ident as $may_json:literal: $may_type:ty,)*
        }
    )*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Debug, Default, PartialEq, ::serde::Deserialize)]
            pub struct $kind {
                /// Name, namespace and the like.
                pub metadata: ::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta,
                $($(#[$must_doc])* #[serde(rename = $must_json)] pub $must: $must_type,)*
                $($(#[$may_doc])* #[serde(rename = $may_json, default)] pub $may: Option<$may_type>,)*
            }

            impl ::k8s_openapi::Resource for $kind {
                const API_VERSION: &'static str = $api_version;
                const GROUP: &'static str = $group;
                const KIND: &'static str = stringify!($kind);
                const VERSION: &'static str = $api_version.split_at($group.len() + 1).1;
                const URL_PATH_SEGMENT: &'static str = $plural;
                type Scope = ::k8s_openapi::$scope;
            }

            impl ::k8s_openapi::Metadata for $kind {
                type Ty = ::k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
                fn metadata(&self) -> &Self::Ty {
                    &self.metadata
                }
                fn metadata_mut(&mut self) -> &mut Self::Ty {
                    &mut self.metadata
                }
            }

            impl ::serde::Serialize for $kind {
                fn serialize<S: ::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                    use ::serde::ser::SerializeStruct as _;
                    let mut object = serializer.serialize_struct(stringify!($kind), 5)?;
                    object.serialize_field("apiVersion", $api_version)?;
                    object.serialize_field("kind", stringify!($kind))?;
                    object.serialize_field("metadata", &self.metadata)?;
                    $(object.serialize_field($must_json, &self.$must)?;)*
                    $(if let Some(value) = &self.$may {
                        object.serialize_field($may_json, value)?;
                    })*
                    object.end()
                }
            }
        )*
    };
}

pub(crate) use kinds;
