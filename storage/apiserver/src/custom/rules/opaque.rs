//! Values of CEL that can be compared, and otherwise be read only by the functions that are declared for them.

/// Makes a type that can be cloned and compared such a value. Expressions see it under `$name`.
macro_rules! opaque {
    ($type:ty, $name:literal) => {
        impl cel::common::value::Val for $type {
            fn get_type(&self) -> &cel::common::types::Type {
                Self::cel_type()
            }

            fn cel_type() -> &'static cel::common::types::Type {
                static TYPE: cel::common::types::Type = cel::common::types::Type::new_unspecified_type($name);
                &TYPE
            }

            fn equals(&self, other: &dyn cel::common::value::Val) -> bool {
                other.downcast_ref::<Self>() == Some(self)
            }

            fn clone_as_boxed<'v>(&self) -> Box<dyn cel::common::value::Val + 'v>
            where
                Self: 'v,
            {
                Box::new(<Self as Clone>::clone(self))
            }

            fn as_any(&self) -> Option<&dyn std::any::Any> {
                Some(self)
            }
        }

        impl cel::common::value::StaticVal for $type {}
    };
}
pub(super) use opaque;
