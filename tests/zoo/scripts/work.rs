// Traits, iterators, maps, threads, channels and a caught panic.
use std::collections::{BTreeMap, HashMap};
use std::sync::{mpsc, Arc, Mutex};
use std::thread;

trait Shape {
    fn area(&self) -> f64;
}
struct Square(f64);
struct Circle(f64);
impl Shape for Square {
    fn area(&self) -> f64 {
        self.0 * self.0
    }
}
impl Shape for Circle {
    fn area(&self) -> f64 {
        3.14159 * self.0 * self.0
    }
}

fn main() {
    let shapes: Vec<Box<dyn Shape>> = (0..100_000)
        .map(|i| -> Box<dyn Shape> {
            if i % 3 == 0 {
                Box::new(Circle((i % 7) as f64))
            } else {
                Box::new(Square((i % 10) as f64))
            }
        })
        .collect();
    println!("{:.3}", shapes.iter().map(|shape| shape.area()).sum::<f64>());
    let mut hashed: HashMap<u64, Vec<u64>> = HashMap::new();
    let mut ordered: BTreeMap<String, u64> = BTreeMap::new();
    for i in 0..50_000u64 {
        hashed.entry(i * 7919 % 1009).or_default().push(i);
        *ordered.entry(format!("{}", i % 701)).or_insert(0) += i;
    }
    println!("{} {:?}", hashed[&5].len(), ordered.iter().next());
    let total = Arc::new(Mutex::new(0u64));
    let (sender, receiver) = mpsc::channel();
    let threads: Vec<_> = (0..8u64)
        .map(|n| {
            let (total, sender) = (Arc::clone(&total), sender.clone());
            thread::spawn(move || {
                for i in 0..20_000 {
                    *total.lock().unwrap() += i ^ n;
                }
                sender.send(n * n).unwrap();
            })
        })
        .collect();
    drop(sender);
    for thread in threads {
        thread.join().unwrap();
    }
    println!("{} {}", total.lock().unwrap(), receiver.iter().sum::<u64>());
    std::panic::set_hook(Box::new(|_| {}));
    let caught = (0..100)
        .filter(|n| std::panic::catch_unwind(|| if n % 3 == 0 { panic!("third") }).is_err())
        .count();
    println!("caught {caught}");
    let mut words: Vec<String> = (0..20_000u32).map(|n| format!("{:x}", n.wrapping_mul(2_654_435_761))).collect();
    words.sort_by(|a, b| b.cmp(a));
    println!("{} {}", words[0], words[19_999]);
}
