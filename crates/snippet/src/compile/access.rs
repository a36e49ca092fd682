//! Where memory is read or written: the address that the instruction at the site is about to use.

use super::generator::Generator;
use super::value::Value;
use crate::asm::{Alu, Mem, Shift};
use weft_code::{Access, Segment};

impl Generator<'_> {
    fn access(&self) -> Access {
        // Sites without one are refused where it is asked for.
        self.site.access.unwrap_or_default()
    }

    pub(super) fn access_address(&mut self) -> Value {
        let access = self.access();
        let mut value = match access.base {
            Some(base) => self.origin(base),
            None => Value::Int(0),
        };
        if let Some((register, shift)) = access.index {
            let index = self.origin(register);
            value = if access.is_byte_index {
                let index = self.own(index);
                self.asm.movzx8(index, index);
                self.arithmetic(Alu::Add, Value::Own(index), value)
            } else if value == Value::Int(0) {
                self.shift(Shift::Shl, index, Value::Int(shift.into()))
            } else {
                let (base, base_held) = self.readable(value);
                let (index, index_held) = self.readable(index);
                self.release(base_held);
                self.release(index_held);
                let to = self.temp();
                self.asm.lea(to, Mem::Index(base, index, 1 << shift, 0));
                Value::Own(to)
            };
        }
        value = match (value, i32::try_from(access.displacement)) {
            (Value::Int(0), _) => Value::Int(access.displacement),
            (value, Ok(0)) => value,
            (Value::Own(register) | Value::Ref(register), Ok(displacement)) => {
                self.release(value);
                let to = self.temp();
                self.asm.lea(to, Mem::Base(register, displacement));
                Value::Own(to)
            }
            (value, _) => self.arithmetic(Alu::Add, value, Value::Int(access.displacement)),
        };
        if access.is_narrow {
            let to = self.own(value);
            self.asm.mov32(to, to);
            value = Value::Own(to);
        }
        let Some(segment) = access.segment else { return value };
        let to = self.temp();
        match (segment, self.env.engine) {
            (Segment::Fs, _) => self.asm.rdfsbase(to),
            (Segment::Gs, None) => self.asm.rdgsbase(to),
            (Segment::Gs, Some(engine)) => self.asm.engine_word(to, engine.gs_base),
        }
        self.arithmetic(Alu::Add, Value::Own(to), value)
    }

    pub(super) fn access_size(&mut self) -> Value {
        let access = self.access();
        if !access.is_repeated {
            return Value::Int(access.size.into());
        }
        let count = self.origin(weft_code::Register::RCX);
        let to = self.own(count);
        if access.is_narrow {
            self.asm.mov32(to, to);
        }
        self.asm.imul_imm(to, to, access.size as i32);
        Value::Own(to)
    }
}
