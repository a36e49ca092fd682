//! Numbers of as many bytes as they need.

use crate::{Error, Result};

/// Writes a number, seven bits to the byte.
#[inline]
pub fn put(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A difference as a number that is small when the difference is.
#[inline]
pub fn folded(difference: u64) -> u64 {
    difference << 1 ^ (difference as i64 >> 63) as u64
}

/// The difference that was [`folded`].
#[inline]
pub fn unfolded(value: u64) -> u64 {
    value >> 1 ^ (value & 1).wrapping_neg()
}

/// Bytes that are being read.
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn take(&mut self, count: usize) -> Result<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or_else(cut)?;
        self.0 = rest;
        Ok(taken)
    }

    #[inline]
    pub fn byte(&mut self) -> Result<u8> {
        let (&byte, rest) = self.0.split_first().ok_or_else(cut)?;
        self.0 = rest;
        Ok(byte)
    }

    /// What [`put`] has written.
    #[inline]
    pub fn number(&mut self) -> Result<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(Error::bad("a number has too many bytes"))
    }

    pub fn u64(&mut self) -> Result<u64> {
        Ok(u64::from_le_bytes(self.take(8)?.try_into().expect("eight bytes")))
    }

    pub fn u32(&mut self) -> Result<u32> {
        Ok(u32::from_le_bytes(self.take(4)?.try_into().expect("four bytes")))
    }
}

fn cut() -> Error {
    Error::bad("it ends in the middle of something")
}
