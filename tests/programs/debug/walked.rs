// Enums, traits, generics, closures, collections and a caught panic, for tests/gdb to walk through.
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};

static TOTAL: AtomicI64 = AtomicI64::new(0);

#[derive(Clone, Debug)]
enum Shape {
    Circle { radius: f64 },
    Square(f64),
    Nothing,
}

trait Measured {
    fn area(&self) -> f64;
}

impl Measured for Shape {
    fn area(&self) -> f64 {
        match self {
            Shape::Circle { radius } => 3.14 * radius * radius,
            Shape::Square(side) => side * side,
            Shape::Nothing => 0.0,
        }
    }
}

fn largest<T: PartialOrd + Copy>(values: &[T]) -> Option<T> {
    let mut found = *values.first()?;
    for &value in values {
        if value > found {
            found = value;
        }
    }
    Some(found)
}

fn parse(text: &str) -> Result<i64, std::num::ParseIntError> {
    let number: i64 = text.trim().parse()?;
    Ok(number * 2)
}

#[inline(never)]
pub fn twice(number: i32) -> i32 {
    number * 2
}

fn count_words(text: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for word in text.split_whitespace() {
        *counts.entry(word.to_string()).or_insert(0) += 1;
    }
    counts
}

fn fibonacci(n: u32) -> u64 {
    if n < 2 { u64::from(n) } else { fibonacci(n - 1) + fibonacci(n - 2) }
}

fn do_round(round: i64) {
    let shapes = vec![
        Shape::Circle { radius: round as f64 },
        Shape::Square(2.5),
        Shape::Nothing,
    ];
    let measured: Vec<Box<dyn Measured>> =
        shapes.iter().cloned().map(|shape| Box::new(shape) as Box<dyn Measured>).collect();
    let area: f64 = measured.iter().map(|one| one.area()).sum();
    let words = count_words("one two one three two one");
    let factor = round % 7;
    let scaled = |number: i64| number * factor + words.len() as i64;
    let parsed = parse(if round % 3 == 0 { " 12 " } else { "twelve" }).unwrap_or(-1);
    let top = largest(&[3, round % 11, 5]).unwrap_or(0);
    let sum = area as i64 + scaled(4) + parsed + top + i64::from(twice(round as i32));
    TOTAL.fetch_add(sum + fibonacci((round % 6) as u32) as i64, Ordering::Relaxed);
}

fn main() {
    let rounds = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(10);
    for round in 0..rounds {
        do_round(round);
    }
    println!("{}", TOTAL.load(Ordering::Relaxed));
}
