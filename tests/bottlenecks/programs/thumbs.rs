// Makes small pictures of large ones, each in memory of its own.
#[path = "operations.rs"]
mod operations;

const SIZE: usize = 48 << 20;

#[inline(never)]
fn blank_canvas() -> Vec<u8> {
    vec![0; SIZE]
}

#[inline(never)]
fn draw(canvas: &mut [u8], shade: u8) -> u64 {
    let mut sum = 0;
    for place in (0..canvas.len()).step_by(4096) {
        canvas[place] = shade;
        sum += u64::from(canvas[place]);
    }
    sum
}

fn main() {
    let operations = operations::counter();
    let mut sum = 0u64;
    for shade in (1..=255u8).cycle() {
        let mut canvas = blank_canvas();
        sum = sum.wrapping_add(draw(&mut canvas, shade));
        std::hint::black_box(sum);
        operations::count(operations);
    }
}
