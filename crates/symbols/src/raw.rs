//! What one reader says about one function, before the readers' answers are merged.

/// What a function is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum FunctionKind {
    /// An ordinary function.
    Function,
    /// A function that chooses, when the program starts, which function its name stands for.
    Ifunc,
    /// An entry of the procedure linkage table: a jump to a function of another module.
    Plt,
}

/// Who can see the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Binding {
    /// All modules; two definitions of the name are an error.
    Global,
    /// All modules; another definition of the name takes precedence.
    Weak,
    /// Its own object file only.
    Local,
}

/// Whether other modules can reach the function by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Visibility {
    /// They can, and another module may take the name over.
    Default,
    /// They can, and calls from within the module stay in it.
    Protected,
    /// They cannot.
    Hidden,
    /// They cannot, not even through a pointer.
    Internal,
}

/// Which part of the file named the function. In order of trust.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Origin {
    /// The full symbol table of the module itself.
    Symtab,
    /// The full symbol table of its separate debug file.
    DebugFile,
    /// The symbols that the dynamic loader uses.
    Dynsym,
    /// The compressed symbol table in `.gnu_debugdata`.
    MiniDebugInfo,
    /// The function table that Go programs carry for their own stack traces.
    GoTable,
    /// The procedure linkage table and its relocations.
    Plt,
    /// The unwind tables, which know where functions are but not what they are called.
    Frames,
}

/// The variants of an enumeration, each with its number and its name.
macro_rules! numbered {
    ($($kind:ident { $($variant:ident = $name:literal),+ $(,)? })+) => {$(
        impl $kind {
            const ALL: &'static [(Self, &'static str)] = &[$((Self::$variant, $name)),+];

            /// The name that users see.
            pub fn name(self) -> &'static str {
                Self::ALL[self as usize].1
            }

            /// The variant with that number, when there is one.
            pub(crate) fn from_number(number: u8) -> Option<Self> {
                Self::ALL.get(usize::from(number)).map(|(variant, _)| *variant)
            }
        }
    )+};
}

numbered! {
    FunctionKind { Function = "function", Ifunc = "ifunc", Plt = "plt" }
    Binding { Global = "global", Weak = "weak", Local = "local" }
    Visibility {
        Default = "default", Protected = "protected", Hidden = "hidden", Internal = "internal",
    }
    Origin {
        Symtab = "symtab", DebugFile = "debug file", Dynsym = "dynsym",
        MiniDebugInfo = "gnu_debugdata", GoTable = "gopclntab", Plt = "plt", Frames = "eh_frame",
    }
}

/// What one reader says about one function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RawFunction<'data> {
    pub(crate) address: u64,
    /// 0 when the reader does not know.
    pub(crate) size: u64,
    pub(crate) name: &'data [u8],
    pub(crate) kind: FunctionKind,
    pub(crate) binding: Binding,
    pub(crate) visibility: Visibility,
    pub(crate) origin: Origin,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_variants_agree() {
        for (number, (variant, name)) in Origin::ALL.iter().enumerate() {
            assert_eq!(Origin::from_number(number as u8), Some(*variant));
            assert_eq!(variant.name(), *name);
        }
        assert_eq!(Origin::from_number(200), None);
    }
}
