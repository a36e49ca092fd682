// Sorting, a Map, recursion and JSON, as often as told; prints what came of it.
const fib = (n) => (n < 2 ? n : fib(n - 1) + fib(n - 2));

function once(seed) {
    let x = seed + 7;
    const next = () => (x = (x * 16807) % 2147483647);
    const numbers = Array.from({ length: 100000 }, next);
    numbers.sort((a, b) => a - b);
    const found = new Map();
    for (let i = 0; i < 150000; i++) {
        const key = `k${next() % 5003}`;
        found.set(key, (found.get(key) ?? 0) + 1);
    }
    const items = Array.from({ length: 10000 }, (_, i) => ({ id: i, name: `n${next() % 999}`, tags: [i % 3] }));
    const again = JSON.parse(JSON.stringify(items));
    return numbers[500] % 1000 + found.size + again.length + fib(28);
}

let total = 0;
for (let round = 0; round < Number(process.argv[2]); round++) total += once(round);
console.log(total);
