//! Attaches to a process, pings every thread and detaches, a number of times.
fn main() {
    let mut args = std::env::args().skip(1).map(|a| a.parse::<i32>().expect("a number"));
    let (pid, cycles) = (args.next().expect("PID"), args.next().unwrap_or(1));
    for cycle in 0..cycles {
        let mut target = weft_host::Target::attach(pid).expect("attach");
        let pongs = target.ping().expect("ping");
        if cycle == 0 {
            println!("{pongs:?} {:?}", target.cpu());
        }
        target.detach().expect("detach");
        if cycle == cycles - 1 {
            println!("{:?}", target.pauses());
        }
    }
}
