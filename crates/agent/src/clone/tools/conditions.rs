//! Conditions of breakpoints: what GDB calls agent expressions.
//!
//! They are evaluated by the thread that has come to the breakpoint, so that one that does not hold costs no stop.
//! The numbers of the operations are those of GDB's manual, "The GDB Agent Expression Mechanism".

use alloc::vec::Vec;

/// How many operations may be done before it is taken for endless.
const MOST: usize = 10_000;
/// How many values there may be at once.
const DEEPEST: usize = 64;

/// What an expression can read of the program.
pub trait World {
    /// A register, by GDB's number.
    fn register(&self, number: u16) -> Option<u64>;
    /// Memory, of at most eight bytes.
    fn memory(&self, address: u64, length: usize) -> Option<u64>;
}

struct Machine<'a> {
    code: &'a [u8],
    at: usize,
    stack: Vec<u64>,
}

impl Machine<'_> {
    fn operand(&mut self, length: usize) -> Option<u64> {
        let bytes = self.code.get(self.at..self.at + length)?;
        self.at += length;
        Some(bytes.iter().fold(0, |value, &byte| value << 8 | u64::from(byte)))
    }

    fn pop(&mut self) -> Option<u64> {
        self.stack.pop()
    }

    fn push(&mut self, value: u64) -> Option<()> {
        (self.stack.len() < DEEPEST).then(|| self.stack.push(value))
    }

    fn binary(&mut self, act: impl FnOnce(u64, u64) -> Option<u64>) -> Option<()> {
        let (b, a) = (self.pop()?, self.pop()?);
        self.push(act(a, b)?)
    }

    fn unary(&mut self, act: impl FnOnce(u64) -> u64) -> Option<()> {
        let value = self.pop()?;
        self.push(act(value))
    }
}

/// The value of an expression; `None` if it has none.
pub fn evaluate(code: &[u8], world: &impl World) -> Option<u64> {
    let mut machine = Machine { code, at: 0, stack: Vec::new() };
    for _ in 0..MOST {
        let operation = machine.operand(1)?;
        match operation {
            0x02 => machine.binary(|a, b| Some(a.wrapping_add(b)))?,
            0x03 => machine.binary(|a, b| Some(a.wrapping_sub(b)))?,
            0x04 => machine.binary(|a, b| Some(a.wrapping_mul(b)))?,
            0x05 => machine.binary(|a, b| Some((a as i64).checked_div(b as i64)? as u64))?,
            0x06 => machine.binary(u64::checked_div)?,
            0x07 => machine.binary(|a, b| Some((a as i64).checked_rem(b as i64)? as u64))?,
            0x08 => machine.binary(u64::checked_rem)?,
            0x09 => machine.binary(|a, b| Some(a.checked_shl(b as u32).unwrap_or(0)))?,
            0x0a => machine.binary(|a, b| Some((a as i64 >> b.min(63)) as u64))?,
            0x0b => machine.binary(|a, b| Some(a.checked_shr(b as u32).unwrap_or(0)))?,
            0x0e => machine.unary(|a| u64::from(a == 0))?,
            0x0f => machine.binary(|a, b| Some(a & b))?,
            0x10 => machine.binary(|a, b| Some(a | b))?,
            0x11 => machine.binary(|a, b| Some(a ^ b))?,
            0x12 => machine.unary(|a| !a)?,
            0x13 => machine.binary(|a, b| Some(u64::from(a == b)))?,
            0x14 => machine.binary(|a, b| Some(u64::from((a as i64) < b as i64)))?,
            0x15 => machine.binary(|a, b| Some(u64::from(a < b)))?,
            0x16 => {
                let spare = 64u32.checked_sub(machine.operand(1)? as u32).filter(|&it| it < 64)?;
                machine.unary(|a| ((a << spare) as i64 >> spare) as u64)?;
            }
            0x17..=0x1a => {
                let address = machine.pop()?;
                machine.push(world.memory(address, 1 << (operation - 0x17))?)?;
            }
            0x20 => {
                let target = machine.operand(2)?;
                if machine.pop()? != 0 {
                    machine.at = target as usize;
                }
            }
            0x21 => machine.at = machine.operand(2)? as usize,
            0x22..=0x25 => {
                let value = machine.operand(1 << (operation - 0x22))?;
                machine.push(value)?;
            }
            0x26 => {
                let number = machine.operand(2)?;
                machine.push(world.register(number as u16)?)?;
            }
            0x27 => return machine.pop(),
            0x28 => machine.push(*machine.stack.last()?)?,
            0x29 => drop(machine.pop()?),
            0x2a => {
                let spare = 64u32.checked_sub(machine.operand(1)? as u32).filter(|&it| it < 64)?;
                machine.unary(|a| a << spare >> spare)?;
            }
            0x2b => {
                let (b, a) = (machine.pop()?, machine.pop()?);
                machine.push(b)?;
                machine.push(a)?;
            }
            0x32 => {
                let depth = machine.operand(1)? as usize;
                let index = machine.stack.len().checked_sub(depth + 1)?;
                machine.push(machine.stack[index])?;
            }
            0x33 => {
                let (c, b, a) = (machine.pop()?, machine.pop()?, machine.pop()?);
                [c, a, b].into_iter().try_for_each(|value| machine.push(value))?;
            }
            _ => return None,
        }
    }
    None
}

/// Whether any of a breakpoint's conditions holds. What has no value is for the debugger to judge.
pub fn holds(text: &[u8], world: &impl World) -> bool {
    fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
        let (taken, after) = rest.split_at_checked(length)?;
        *rest = after;
        Some(taken)
    }
    fn half(rest: &mut &[u8]) -> Option<usize> {
        let bytes = take(rest, 2)?;
        Some(usize::from(u16::from_le_bytes([bytes[0], bytes[1]])))
    }
    let mut rest = text;
    let Some(count) = half(&mut rest) else { return true };
    (0..count).any(|_| {
        let code = half(&mut rest).and_then(|length| take(&mut rest, length));
        code.and_then(|code| evaluate(code, world)).is_none_or(|value| value != 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed;

    impl World for Fixed {
        fn register(&self, number: u16) -> Option<u64> {
            (number < 16).then_some(u64::from(number) * 100)
        }

        fn memory(&self, address: u64, length: usize) -> Option<u64> {
            (address >= 0x1000)
                .then(|| (address ^ 0xfedc_ba98_7654_3210) & (!0 >> (64 - 8 * length)))
        }
    }

    #[test]
    fn arithmetic_and_registers() {
        // $rdi * 2 - 1 == 999
        let code = [0x26, 0, 5, 0x22, 2, 0x04, 0x22, 1, 0x03, 0x23, 3, 0xe7, 0x13, 0x27];
        assert_eq!(evaluate(&code, &Fixed), Some(1));
        // (signed char) 0xff < 0
        assert_eq!(evaluate(&[0x22, 0xff, 0x16, 8, 0x22, 0, 0x14, 0x27], &Fixed), Some(1));
        assert_eq!(evaluate(&[0x22, 0xff, 0x22, 0, 0x14, 0x27], &Fixed), Some(0));
    }

    #[test]
    fn memory_is_read_or_has_no_value() {
        assert_eq!(evaluate(&[0x23, 0x10, 0, 0x17, 0x27], &Fixed), Some(0x10));
        assert_eq!(evaluate(&[0x22, 8, 0x1a, 0x27], &Fixed), None);
        assert!(holds(&[1, 0, 4, 0, 0x22, 8, 0x1a, 0x27], &Fixed), "the debugger decides");
    }

    #[test]
    fn branches_stacks_and_ends() {
        // 1 ? 7 : 9, as `&&` and `||` are made
        let code = [0x22, 1, 0x20, 0, 8, 0x22, 9, 0x27, 0x22, 7, 0x27];
        assert_eq!(evaluate(&code, &Fixed), Some(7));
        assert_eq!(evaluate(&[0x21, 0, 0], &Fixed), None, "it never ends");
        assert_eq!(evaluate(&[0x22, 1, 0x22, 2, 0x22, 3, 0x33, 0x27], &Fixed), Some(2));
        assert_eq!(evaluate(&[0x22, 1, 0x22, 2, 0x32, 1, 0x27], &Fixed), Some(1));
        assert_eq!(evaluate(&[0x22, 5, 0x22, 0, 0x05, 0x27], &Fixed), None, "nothing by nothing");
        assert_eq!(evaluate(&[0x02], &Fixed), None);
        assert_eq!(evaluate(&[], &Fixed), None);
    }

    #[test]
    fn one_of_several_conditions_is_enough() {
        let (no, yes) = ([3, 0, 0x22, 0, 0x27], [3, 0, 0x22, 4, 0x27]);
        let text = |all: &[[u8; 5]]| [&[all.len() as u8, 0], all.as_flattened()].concat();
        assert!(!holds(&text(&[no, no]), &Fixed));
        assert!(holds(&text(&[no, yes]), &Fixed));
    }
}
