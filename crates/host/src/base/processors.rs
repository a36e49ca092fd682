//! Which processors weft's own threads work on: not those that a target uses, where there are others.

use std::collections::BTreeSet;
use std::mem::size_of;

/// Some of the machine's processors.
#[derive(Clone, Copy)]
pub struct Processors(libc::cpu_set_t);

impl Processors {
    /// Those that the calling thread may use; nothing if the machine has more than fit.
    pub fn mine() -> Option<Self> {
        // SAFETY: it is an array of bits.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        // SAFETY: the kernel fills in a set of this size.
        let result = unsafe { libc::sched_getaffinity(0, size_of_val(&set), &raw mut set) };
        (result == 0).then_some(Self(set))
    }

    /// How many these are.
    pub fn count(&self) -> usize {
        // SAFETY: it only looks at the set.
        unsafe { libc::CPU_COUNT(&self.0) as usize }
    }

    /// Those that are not among others; nothing if there are none.
    pub fn without(mut self, others: &BTreeSet<usize>) -> Option<Self> {
        for &one in others.iter().filter(|&&one| one < 8 * size_of::<libc::cpu_set_t>()) {
            // SAFETY: it is within the set.
            unsafe { libc::CPU_CLR(one, &mut self.0) };
        }
        (self.count() > 0).then_some(self)
    }

    /// Has a thread of weft's use only these, or the calling one, if it is 0. Its failure does not matter.
    pub fn keep(&self, tid: libc::pid_t) {
        // SAFETY: the kernel reads a set of this size.
        unsafe { libc::sched_setaffinity(tid, size_of_val(&self.0), &raw const self.0) };
    }

    /// Does something on these.
    pub fn run<R>(&self, act: impl FnOnce() -> R) -> R {
        /// Also if it panics.
        struct Back(Option<Processors>);
        impl Drop for Back {
            fn drop(&mut self) {
                if let Some(before) = &self.0 {
                    before.keep(0);
                }
            }
        }
        let _back = Back(Self::mine());
        self.keep(0);
        act()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn works_aside_and_comes_back() {
        let mine = Processors::mine().unwrap();
        assert!(mine.count() > 0);
        assert!(mine.without(&(0..4096).collect()).is_none());
        // SAFETY: a plain question.
        let here = unsafe { libc::sched_getcpu() } as usize;
        let Some(others) = mine.without(&BTreeSet::from([here])) else { return };
        assert_eq!(others.count(), mine.count() - 1);
        // SAFETY: a plain question.
        assert_ne!(others.run(|| unsafe { libc::sched_getcpu() } as usize), here);
        assert_eq!(Processors::mine().unwrap().count(), mine.count());
    }
}
