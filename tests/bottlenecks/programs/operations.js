// Counts operations where others can read it: in a file, which is written every 50 ms.
"use strict";
const fs = require("fs");

const file = fs.openSync(process.argv[2], "r+");
const memory = new BigUint64Array(1);
let written = 0;
let number = 0;

exports.count = () => {
  number++;
  const now = Date.now();
  if (now - written >= 50) {
    written = now;
    memory[0] = BigInt(number);
    fs.writeSync(file, memory, 0, 8, 0);
  }
};
