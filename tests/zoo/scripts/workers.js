// Workers that share memory, and wait for and wake each other.
const { Worker, isMainThread, workerData, parentPort } = require('worker_threads');
if (isMainThread) {
    const shared = new Int32Array(new SharedArrayBuffer(64));
    const answers = [];
    for (let n = 0; n < 4; n++) {
        const worker = new Worker(__filename, { workerData: { shared, n } });
        worker.on('message', (answer) => {
            answers.push(answer);
            if (answers.length === 4) console.log(answers.sort(), shared[0], shared[1]);
        });
    }
} else {
    const { shared, n } = workerData;
    for (let i = 0; i < 20000; i++) Atomics.add(shared, 0, 1);
    while (Atomics.load(shared, 1) !== n) Atomics.wait(shared, 1, Atomics.load(shared, 1), 10);
    Atomics.add(shared, 1, 1);
    Atomics.notify(shared, 1);
    let hash = n;
    for (let i = 0; i < 1000000; i++) hash = (hash * 31 + i) | 0;
    parentPort.postMessage(`${n}:${hash}`);
}
