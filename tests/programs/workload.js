// Compiled loops, garbage, promises, timers, worker threads. Works until its input ends.
"use strict";
const { Worker, isMainThread, parentPort } = require("node:worker_threads");
const { createHash } = require("node:crypto");

function churn(rounds) {
    const map = new Map();
    for (let i = 0; i < rounds; i++) map.set(i, { text: "item " + i, list: [i, i + 1] });
    let sum = 0;
    for (const [key, value] of map) sum += key + value.list[1];
    return sum;
}

if (!isMainThread) {
    parentPort.on("message", (rounds) => parentPort.postMessage(churn(rounds)));
} else {
    let finished = false;
    const broken = [];
    const check = (holds, what) => holds || broken.push(what);
    const worker = new Worker(__filename);
    const ask = (rounds) =>
        new Promise((resolve) => {
            worker.once("message", resolve);
            worker.postMessage(rounds);
        });
    const repeat = async (step) => {
        do await step();
        while (!finished);
    };
    const steps = [
        async () => check((await ask(500)) === 250000, "worker"),
        async () => {
            check(churn(300) === 90000, "churn");
            await new Promise(setImmediate);
        },
        async () => {
            const start = performance.now();
            await new Promise((resolve) => setTimeout(resolve, 5));
            check(performance.now() - start >= 4, "timer");
        },
        async () => {
            const digest = createHash("sha256").update("weft").digest("hex");
            check(digest.length === 64, "hash");
            await new Promise(setImmediate);
        },
        async () => {
            await Promise.reject(new Error("expected")).catch((error) =>
                check(error.message === "expected", "rejection"),
            );
            await new Promise(setImmediate);
        },
    ];
    const work = steps.map(repeat);
    process.stdin.on("data", () => broken.push("input"));
    process.stdin.on("end", async () => {
        finished = true;
        await Promise.all(work);
        await worker.terminate();
        console.log("broken:", broken.join(" "));
        process.exitCode = 7;
    });
    console.log("ready");
}
