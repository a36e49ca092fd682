//! Differences, as few bytes: those that were there a short while ago by their place in a table, others as they are.

use crate::bytes::{Input, folded, unfolded};
use crate::{Error, Result};

const PLACES_SHIFT: u32 = 64 - 8;
const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
/// How many are put into bytes at a time: they stay close by until then.
const WAITING: usize = 4096;

/// The differences that came last, each in the place that it has.
#[derive(Debug)]
struct Table([u64; 256]);

impl Table {
    #[inline]
    fn place(difference: u64) -> usize {
        (difference.wrapping_mul(MIX) >> PLACES_SHIFT) as usize
    }
}

/// Differences on their way to bytes.
#[derive(Debug)]
pub(crate) struct Packer {
    waiting: Box<[u64; WAITING]>,
    count: usize,
    table: Box<Table>,
    /// How many bytes each has, four bits: 0 if it is in the table.
    lengths: Vec<u8>,
    values: Vec<u8>,
}

impl Packer {
    pub fn new() -> Self {
        Self {
            waiting: vec![0; WAITING].into_boxed_slice().try_into().expect("its length"),
            count: 0,
            table: Box::new(Table([0; 256])),
            lengths: Vec::new(),
            values: Vec::new(),
        }
    }

    /// Takes those of a group whose bit is set.
    #[inline]
    pub fn push_group(&mut self, differences: &[u64; 8], mask: u32) {
        if self.count > WAITING - 8 {
            // Two of them share a byte: one may have to wait for the next.
            let rest = self.count % 2;
            self.pack(self.count - rest);
            self.waiting[0] = self.waiting[self.count - 1];
            self.count = rest;
        }
        for (lane, &difference) in differences.iter().enumerate() {
            // The next one that counts is written over one that does not.
            self.waiting[self.count & (WAITING - 1)] = difference;
            self.count += (mask >> lane & 1) as usize;
        }
    }

    /// Takes one.
    pub fn push(&mut self, difference: u64) {
        self.push_group(&[difference; 8], 1);
    }

    /// Puts so many of those that wait into bytes.
    fn pack(&mut self, count: usize) {
        let mut at = self.values.len();
        self.values.resize(at + 8 * count + 8, 0);
        let mut lengths = [0; WAITING];
        for (&difference, length) in self.waiting[..count].iter().zip(&mut lengths) {
            let place = Table::place(difference);
            let is_there = std::mem::replace(&mut self.table.0[place], difference) == difference;
            let value = folded(difference);
            let bytes = (8 - value.leading_zeros() as usize / 8).max(1);
            let (value, bytes, said) =
                if is_there { (place as u64, 1, 0) } else { (value, bytes, bytes as u8) };
            *length = said;
            self.values[at..at + 8].copy_from_slice(&value.to_le_bytes());
            at += bytes;
        }
        self.values.truncate(at);
        self.lengths.extend(lengths[..count].chunks(2).map(|two| match *two {
            [first, second] => first | second << 4,
            _ => two[0],
        }));
    }

    /// All that were pushed: lengths and values.
    pub fn finish(mut self) -> (Vec<u8>, Vec<u8>) {
        self.pack(self.count);
        (self.lengths, self.values)
    }
}

/// Differences that come back.
pub(crate) struct Unpacker<'a> {
    table: Box<Table>,
    lengths: Input<'a>,
    values: Input<'a>,
    /// The length that is left of a byte.
    left: Option<u8>,
}

impl<'a> Unpacker<'a> {
    pub fn new(lengths: &'a [u8], values: &'a [u8]) -> Self {
        let table = Box::new(Table([0; 256]));
        Self { table, lengths: Input(lengths), values: Input(values), left: None }
    }

    #[inline]
    pub fn next(&mut self) -> Result<u64> {
        let length = match self.left.take() {
            Some(length) => length,
            None => {
                let both = self.lengths.byte()?;
                self.left = Some(both >> 4);
                both & 15
            }
        };
        if length == 0 {
            return Ok(self.table.0[usize::from(self.values.byte()?)]);
        }
        if length > 8 {
            return Err(Error::bad("a difference has too many bytes"));
        }
        let mut bytes = [0; 8];
        bytes[..length.into()].copy_from_slice(self.values.take(length.into())?);
        let difference = unfolded(u64::from_le_bytes(bytes));
        self.table.0[Table::place(difference)] = difference;
        Ok(difference)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However many come at once, and whether or not they came before.
    #[test]
    fn differences_come_back() {
        for mask in [0x01, 0x7f, 0xff, 0xaa] {
            let mut packer = Packer::new();
            let mut pushed = Vec::new();
            for round in 0..3000_u64 {
                let group: [u64; 8] =
                    std::array::from_fn(|lane| (round % 700).wrapping_mul(MIX) >> (lane * 8));
                packer.push_group(&group, mask);
                pushed.extend((0..8).filter(|lane| mask >> lane & 1 != 0).map(|lane| group[lane]));
            }
            let (lengths, values) = packer.finish();
            assert_eq!(lengths.len(), pushed.len().div_ceil(2));
            let mut unpacker = Unpacker::new(&lengths, &values);
            for difference in pushed {
                assert_eq!(unpacker.next().expect("one more"), difference);
            }
        }
    }
}
