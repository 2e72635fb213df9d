//! Enums whose variants have a name in the public contract: one place for both directions.

/// Declares an enum together with its contract names, `ALL`, `name` and `from_name`.
macro_rules! named {
    ($(#[$meta:meta])* $vis:vis enum $type:ident { $($(#[$vmeta:meta])* $variant:ident => $name:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        $vis enum $type { $($(#[$vmeta])* #[doc = concat!("`", $name, "`")] $variant,)+ }

        impl $type {
            /// Every variant, in order of declaration.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The name used in records, answers and logs.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)+ }
            }

            /// The variant of that name, if there is one.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|v| v.name() == name)
            }
        }

        impl std::fmt::Display for $type {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}
pub(crate) use named;
