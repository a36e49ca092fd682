//! Which programs an x86-64 kernel runs, told by their ELF headers.

/// How many bytes of an ELF file are enough to know.
pub(crate) const HEADER_SIZE: usize = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    X86_64,
    X86_32,
    X32,
    Other,
}

/// The kind of a program, from its class (byte 4) and its machine (bytes 18 and 19).
pub(crate) fn kind(header: &[u8; HEADER_SIZE]) -> Program {
    const EM_386: u16 = 3;
    const EM_X86_64: u16 = 62;
    match (header[4], u16::from_le_bytes([header[18], header[19]])) {
        (2, EM_X86_64) => Program::X86_64,
        (1, EM_X86_64) => Program::X32,
        (1, EM_386) => Program::X86_32,
        _ => Program::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(class: u8, machine: u16) -> [u8; HEADER_SIZE] {
        let mut header = [0; HEADER_SIZE];
        header[4] = class;
        header[18..].copy_from_slice(&machine.to_le_bytes());
        header
    }

    #[test]
    fn programs_are_told_apart() {
        assert_eq!(kind(&header(2, 62)), Program::X86_64);
        assert_eq!(kind(&header(1, 62)), Program::X32);
        assert_eq!(kind(&header(1, 3)), Program::X86_32);
        assert_eq!(kind(&header(2, 183)), Program::Other);
    }
}
