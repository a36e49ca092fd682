//! What follows from a snippet without compiling it: what it reads, changes and calls.

use crate::ir::{
    Binary, Datum, DatumKind, Expr, LetId, PointKind, Statement, TimerClock, Type, Unary, Weave,
};
use crate::system_calls::{CLOCK_GETTIME, NANOSLEEP, PROCESS_VM_READV};
use alloc::vec::Vec;
use weft_code::{Access, Convention, Register, RegisterSet};

impl Weave {
    /// Registers of the program that it reads by their names, at any point.
    pub fn named_registers(&self) -> RegisterSet {
        let mut read = RegisterSet::NONE;
        for statement in self.sections.iter().flat_map(|section| &section.body) {
            walk_expressions(statement, &mut |expr| {
                if let Expr::Register(register) = expr {
                    read = read.with(*register);
                }
            });
        }
        read
    }

    /// Registers of the program that it reads at points of one kind, where arguments are given by a
    /// convention, and the access to memory is known if the point is one.
    pub fn registers_read(
        &self,
        kind: PointKind,
        convention: Convention,
        access: Option<&Access>,
    ) -> RegisterSet {
        registers_read(self.body(kind).unwrap_or_default(), kind, convention, access)
    }

    /// Whether anything in it changes what the program computes, at points of one kind.
    pub fn changes_program(&self, kind: PointKind) -> bool {
        let mut changes = false;
        for statement in self.body(kind).unwrap_or_default() {
            walk(statement, &mut |statement| {
                changes |= matches!(
                    statement,
                    Statement::SetArg { .. } | Statement::SetResult(_) | Statement::Return(_)
                );
            });
        }
        changes
    }

    /// Whether anything in it reads the time stamp counter, which a program can forbid itself.
    pub fn reads_counter(&self) -> bool {
        let times = |datum: &Datum| {
            matches!(datum.kind, DatumKind::Timer(TimerClock::Wall) | DatumKind::Mark)
        };
        let mut reads = self.data.iter().any(times);
        for statement in self.sections.iter().flat_map(|section| &section.body) {
            walk_expressions(statement, &mut |expr| {
                reads |= matches!(expr, Expr::Now | Expr::Ticks);
            });
        }
        reads
    }

    /// The numbers of the system calls that its snippets make, which a seccomp filter can forbid. A thread's first
    /// probe may make another, [`crate::GETTID`]. In a clone, memory is read without.
    pub fn system_calls(&self, in_clone: bool) -> Vec<i64> {
        let mut cpu = false;
        let mut loads = false;
        for statement in self.sections.iter().flat_map(|section| &section.body) {
            walk_expressions(statement, &mut |expr| {
                cpu |= matches!(expr, Expr::Cpu);
                loads |= matches!(expr, Expr::Load { .. } | Expr::Text { .. } | Expr::Stack { .. });
            });
        }
        let has = |is: fn(&DatumKind) -> bool| self.data.iter().any(|datum| is(&datum.kind));
        cpu |= has(|kind| matches!(kind, DatumKind::Timer(TimerClock::Cpu)));
        let waits = has(|kind| matches!(kind, DatumKind::Ring { blocking: true, .. }));
        let calls =
            [(cpu, CLOCK_GETTIME), (loads && !in_clone, PROCESS_VM_READV), (waits, NANOSLEEP)];
        calls.into_iter().filter(|(makes, _)| *makes).map(|(_, number)| number).collect()
    }

    /// Whether anything in it takes stacks.
    pub fn takes_stacks(&self) -> bool {
        self.data.iter().any(|datum| datum.kind == DatumKind::Stacks)
    }

    /// Whether anything in it calls a function of the program.
    pub fn calls_program(&self) -> bool {
        let mut calls = false;
        for statement in self.sections.iter().flat_map(|section| &section.body) {
            walk(statement, &mut |statement| calls |= matches!(statement, Statement::Call(_)));
            walk_expressions(statement, &mut |expr| calls |= matches!(expr, Expr::Call(_)));
        }
        calls
    }
}

/// The register that an argument is in; `None` if it is on the stack.
pub(crate) fn argument(kind: PointKind, convention: Convention, number: u8) -> Option<Register> {
    const KERNEL: [Register; 6] =
        [Register::RDI, Register::RSI, Register::RDX, Register::R10, Register::R8, Register::R9];
    const SYSTEM_V: [Register; 6] =
        [Register::RDI, Register::RSI, Register::RDX, Register::RCX, Register::R8, Register::R9];
    const GO: [Register; 9] = [
        Register::RAX,
        Register::RBX,
        Register::RCX,
        Register::RDI,
        Register::RSI,
        Register::R8,
        Register::R9,
        Register::R10,
        Register::R11,
    ];
    let registers: &[Register] = match convention {
        _ if kind.is_of_kernel() => &KERNEL,
        Convention::Go => &GO,
        _ => &SYSTEM_V,
    };
    registers.get(usize::from(number)).copied()
}

/// How far a System V argument on the stack is above the return address, or where that will be.
pub(crate) fn stack_argument(kind: PointKind, number: u8) -> i64 {
    let index = i64::from(number) - 6;
    if kind == PointKind::CallBefore { 8 * index } else { 8 + 8 * index }
}

/// The type of a verified expression.
pub(crate) fn shallow_type(expr: &Expr, lets: &dyn Fn(LetId) -> Type) -> Type {
    match expr {
        Expr::Float(_) | Expr::Unary(Unary::ToFloat | Unary::FromBits, _) => Type::Float,
        Expr::Text { .. } => Type::Text,
        Expr::Stack { .. } => Type::Stack,
        Expr::Let(id) => lets(*id),
        Expr::Unary(Unary::Negate, inner) => shallow_type(inner, lets),
        Expr::Binary(Binary::Add | Binary::Sub | Binary::Mul | Binary::Div, a, _) => {
            shallow_type(a, lets)
        }
        _ => Type::Int,
    }
}

/// Visits a statement and all inside it.
pub(crate) fn walk(statement: &Statement, visit: &mut dyn FnMut(&Statement)) {
    visit(statement);
    if let Statement::If { then, otherwise, .. } = statement {
        then.iter().chain(otherwise).for_each(|inner| walk(inner, visit));
    }
}

/// Visits all expressions of a statement, inner ones too.
pub(crate) fn walk_expressions(statement: &Statement, visit: &mut dyn FnMut(&Expr)) {
    walk(statement, &mut |statement| {
        direct_expressions(statement, &mut |expr| walk_expr(expr, visit));
    });
}

/// The registers of the program that statements read or change, where arguments are given by a convention.
pub(crate) fn registers_read(
    body: &[Statement],
    kind: PointKind,
    convention: Convention,
    access: Option<&Access>,
) -> RegisterSet {
    let argument = |number| {
        argument(kind, convention, number).into_iter().fold(RegisterSet::NONE, RegisterSet::with)
    };
    let mut read = RegisterSet::NONE;
    for statement in body {
        walk(statement, &mut |statement| match statement {
            Statement::SetArg { number, .. } => read = read | argument(*number),
            Statement::SetResult(_) | Statement::Return(_) => read = read.with(Register::RAX),
            _ => {}
        });
        walk_expressions(statement, &mut |expr| {
            let registers = match expr {
                Expr::Register(register) => RegisterSet::of(&[*register]),
                Expr::Result => RegisterSet::of(&[Register::RAX]),
                Expr::Stack { .. } => RegisterSet::of(&[Register::RBP]),
                Expr::Arg(number) => argument(*number),
                Expr::AccessAddress => access.map_or(RegisterSet::NONE, Access::address_registers),
                Expr::AccessSize => access.map_or(RegisterSet::NONE, Access::size_registers),
                _ => return,
            };
            read = read | registers;
        });
    }
    read
}

/// Visits a statement's own expressions.
pub(crate) fn direct_expressions(statement: &Statement, visit: &mut dyn FnMut(&Expr)) {
    match statement {
        Statement::Add { value, .. }
        | Statement::Set { value, .. }
        | Statement::Observe { value, .. }
        | Statement::Let { value, .. }
        | Statement::SetArg { value, .. }
        | Statement::SetResult(value)
        | Statement::Return(value) => visit(value),
        Statement::AddAt { keys, value, .. } => {
            keys.iter().for_each(&mut *visit);
            visit(value);
        }
        Statement::Emit { values, .. } => values.iter().for_each(visit),
        Statement::Leave { low, high, .. } => {
            visit(low);
            visit(high);
        }
        Statement::If { condition, .. } => visit(condition),
        Statement::Call(call) => call.arguments.iter().for_each(visit),
        Statement::Start(_) | Statement::Stop(_) | Statement::Stamp(_) => {}
    }
}

/// Visits an expression and all inside it.
pub(crate) fn walk_expr(expr: &Expr, visit: &mut dyn FnMut(&Expr)) {
    visit(expr);
    match expr {
        Expr::Load { address, .. } => walk_expr(address, visit),
        Expr::Text { address, length, .. } => {
            walk_expr(address, visit);
            length.iter().for_each(|length| walk_expr(length, visit));
        }
        Expr::Unary(_, inner) => walk_expr(inner, visit),
        Expr::Binary(_, a, b) => {
            walk_expr(a, visit);
            walk_expr(b, visit);
        }
        Expr::Call(call) => call.arguments.iter().for_each(|a| walk_expr(a, visit)),
        _ => {}
    }
}

/// Whether a statement, or any inside it, needs the slab.
pub(crate) fn needs_slab(statement: &Statement) -> bool {
    match statement {
        Statement::Let { value, .. }
        | Statement::SetArg { value, .. }
        | Statement::SetResult(value)
        | Statement::Return(value) => expr_needs_slab(value),
        Statement::If { condition, then, otherwise } => {
            expr_needs_slab(condition) || then.iter().chain(otherwise).any(needs_slab)
        }
        _ => true,
    }
}

/// Whether an expression needs the slab.
pub(crate) fn expr_needs_slab(expr: &Expr) -> bool {
    match expr {
        Expr::Local(_)
        | Expr::Thread
        | Expr::Since(_)
        | Expr::Load { .. }
        | Expr::Text { .. }
        | Expr::Stack { .. }
        | Expr::Call(_) => true,
        Expr::Unary(_, inner) => expr_needs_slab(inner),
        Expr::Binary(_, a, b) => expr_needs_slab(a) || expr_needs_slab(b),
        _ => false,
    }
}
