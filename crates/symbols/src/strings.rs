//! Who uses a string: what tells functions that have lost their names by the messages that they print.

use crate::elf::Elf;

/// How long `lea register, [rip + distance]` is.
const LEA: usize = 7;

/// Where code takes the address of a string, which ends with a zero byte.
pub(crate) fn users(elf: &Elf, text: &str) -> Vec<u64> {
    let wanted = [text.as_bytes(), b"\0"].concat();
    let strings: Vec<u64> = elf
        .loaded()
        .filter_map(|segment| Some((segment.address, elf.rest_of_segment(segment.address)?)))
        .flat_map(|(start, bytes)| -> Vec<u64> {
            let is_there = |(at, found): (usize, &[u8])| (found == wanted).then_some(at as u64);
            bytes
                .windows(wanted.len())
                .enumerate()
                .filter_map(is_there)
                .map(|at| start + at)
                .collect()
        })
        .collect();
    if strings.is_empty() {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (start, end) in elf.code().iter() {
        let Some(code) = elf.at_address(start, end - start) else { continue };
        for (at, bytes) in code.windows(LEA).enumerate() {
            let address = start + at as u64;
            if address_taken(bytes, address).is_some_and(|taken| strings.contains(&taken)) {
                found.push(address);
            }
        }
    }
    found
}

/// The address that an instruction would take, if one were here.
fn address_taken(bytes: &[u8], address: u64) -> Option<u64> {
    let word = |at: usize| bytes.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes);
    match *bytes {
        [0x48 | 0x4c, 0x8d, operand, ..] if operand & 0xc7 == 0x05 => {
            let next = address.wrapping_add(LEA as u64);
            Some(next.wrapping_add_signed(i64::from(word(3)?.cast_signed())))
        }
        // Programs at fixed addresses have them as numbers.
        [0xb8..=0xbf, ..] => word(1).map(u64::from),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::address_taken;

    #[test]
    fn addresses_are_relative_or_numbers() {
        let lea = [0x48, 0x8d, 0x3d, 0x19, 0x49, 0x10, 0x00];
        assert_eq!(address_taken(&lea, 0x99060), Some(0x19d980));
        let back = [0x4c, 0x8d, 0x05, 0xf9, 0xff, 0xff, 0xff];
        assert_eq!(address_taken(&back, 0x1000), Some(0x1000));
        assert_eq!(address_taken(&[0xbf, 0x80, 0xd9, 0x49, 0x00, 0xe8, 0x00], 0), Some(0x49d980));
        let on_the_stack = [0x48, 0x8d, 0x7c, 0x24, 0x08, 0x90, 0x90];
        assert_eq!(address_taken(&on_the_stack, 0), None);
    }
}
