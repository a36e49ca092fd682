//! Panics, drops and matches, for the tracer.
use std::collections::BTreeMap;
use std::hint::black_box;
use std::panic::catch_unwind;

struct Noisy<'a>(&'a str, std::cell::Cell<u32>);

impl Drop for Noisy<'_> {
    fn drop(&mut self) {
        black_box(self.1.get() + self.0.len() as u32);
    }
}

#[inline(never)]
fn choose(x: u32) -> u32 {
    match x % 9 {
        0 => x.rotate_left(3),
        1 => x / 3,
        2 => x ^ 0x55,
        3 => x.count_ones(),
        4 => x * 7,
        5 => panic!("five of {x}"),
        6 => x - 1,
        _ => black_box(x) & 0xff,
    }
}

#[inline(never)]
fn guarded(x: u32) -> Option<u32> {
    catch_unwind(|| {
        let _noisy = Noisy("guard", std::cell::Cell::new(x));
        choose(x) + choose(x + 1)
    })
    .ok()
}

fn main() {
    std::panic::set_hook(Box::new(|_| {}));
    let mut map = BTreeMap::new();
    for x in 0..black_box(40) {
        *map.entry(format!("{:?}", guarded(x))).or_insert(0) += 1;
    }
    let mut words: Vec<_> = map.into_iter().collect();
    words.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    println!("{words:?}");
}
