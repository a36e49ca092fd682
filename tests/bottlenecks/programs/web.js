// An HTTP server that has little to do.
"use strict";
const http = require("http");
const { count } = require("./operations.js");

http
  .createServer((request, answer) => {
    answer.end("hello\n");
    count();
  })
  .listen(Number(process.argv[3]), "127.0.0.1");
