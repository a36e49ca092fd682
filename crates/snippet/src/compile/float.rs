//! Doubles: in vector registers that are saved first, and in slots.

use super::generator::Generator;
use super::value::{Compared, Value};
use crate::asm::{Cond, Mem, Rm};
use crate::ir::{Binary, Expr, Unary};
use weft_code::Register;

impl Generator<'_> {
    fn xmm(&mut self) -> u8 {
        let number = self.xmm_free.trailing_zeros() as u8;
        self.floats = true;
        self.xmm_free &= !(1 << number);
        self.xmm_used |= 1 << number;
        number
    }

    pub(super) fn release_xmm(&mut self, number: u8) {
        self.xmm_free |= 1 << number;
    }

    fn bits_to_xmm(&mut self, from: Register) -> u8 {
        let number = self.xmm();
        self.asm.sse_wide(0x66, 0x6e, number, Rm::Reg(from.0));
        number
    }

    fn constant_to_xmm(&mut self, bits: u64) -> u8 {
        let register = self.temp();
        self.asm.mov_imm(register, bits as i64);
        let number = self.bits_to_xmm(register);
        self.release(Value::Own(register));
        number
    }

    pub(super) fn eval_float(&mut self, expr: &Expr) -> u8 {
        match expr {
            Expr::Float(value) => self.constant_to_xmm(value.to_bits()),
            Expr::Let(id) => {
                let Value::Stack(at) = self.let_value(*id) else {
                    unreachable!("always in a slot")
                };
                let number = self.xmm();
                self.asm.sse(0xf2, 0x10, number, Mem::Base(Register::RSP, at));
                number
            }
            Expr::Unary(Unary::ToFloat, inner) => {
                let value = self.eval(inner);
                let (register, held) = self.readable(value);
                let number = self.xmm();
                self.asm.sse_wide(0xf2, 0x2a, number, Rm::Reg(register.0));
                self.release(held);
                number
            }
            Expr::Unary(Unary::FromBits, inner) => {
                let value = self.eval(inner);
                let (register, held) = self.readable(value);
                let number = self.bits_to_xmm(register);
                self.release(held);
                number
            }
            Expr::Unary(Unary::Negate, inner) => {
                let number = self.eval_float(inner);
                let sign = self.constant_to_xmm(1 << 63);
                self.asm.sse(0x66, 0x57, number, Rm::Reg(sign));
                self.release_xmm(sign);
                number
            }
            Expr::Binary(op, a, b) => {
                let (left, right) = self.float_pair(a, b);
                let opcode = match op {
                    Binary::Add => 0x58,
                    Binary::Mul => 0x59,
                    Binary::Sub => 0x5c,
                    _ => 0x5e,
                };
                self.asm.sse(0xf2, opcode, left, Rm::Reg(right));
                self.release_xmm(right);
                left
            }
            _ => unreachable!("verified: a double"),
        }
    }

    /// Both values; the left one waits in a slot, since the right one may need all registers.
    fn float_pair(&mut self, a: &Expr, b: &Expr) -> (u8, u8) {
        let left = self.eval_float(a);
        if self.xmm_free.count_ones() > 1 && !matches!(b, Expr::Binary(..)) {
            let right = self.eval_float(b);
            return (left, right);
        }
        let slot = self.slot();
        self.asm.sse(0xf2, 0x11, left, Self::slot_at(slot));
        self.release_xmm(left);
        let right = self.eval_float(b);
        let left = self.xmm();
        self.asm.sse(0xf2, 0x10, left, Self::slot_at(slot));
        self.release(Value::OwnSlot(slot));
        (left, right)
    }

    pub(super) fn compare_floats(&mut self, op: Binary, a: &Expr, b: &Expr) -> Compared {
        let (left, right) = self.float_pair(a, b);
        // Above is false for what is not a number: so the smaller one goes second.
        let (first, second) =
            if matches!(op, Binary::Lt | Binary::Le) { (right, left) } else { (left, right) };
        self.asm.sse(0x66, 0x2e, first, Rm::Reg(second));
        self.release_xmm(left);
        self.release_xmm(right);
        match op {
            Binary::Lt | Binary::Gt => Compared::Flags(Cond::Above),
            Binary::Le | Binary::Ge => Compared::Flags(Cond::AboveEqual),
            _ => Compared::FloatEqual(op == Binary::Eq),
        }
    }
}
