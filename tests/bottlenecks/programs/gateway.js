// For each request it asks a service; `render` also makes a page of the answer.
"use strict";
const http = require("http");
const { count } = require("./operations.js");

const agent = new http.Agent({ keepAlive: true, maxSockets: 1 });
const port = Number(process.argv[3]);

function askService(number) {
  return new Promise((resolve, reject) => {
    const request = http.get({ agent, host: "127.0.0.1", port, path: `/${number}` }, (answer) => {
      let text = "";
      answer.on("data", (part) => (text += part));
      answer.on("end", () => resolve(text));
    });
    request.on("error", reject);
  });
}

function renderPage(text) {
  let hash = 17;
  for (let i = 0; i < 6000000; i++) {
    hash = (Math.imul(hash, 31) + text.charCodeAt(i % text.length)) | 0;
  }
  return hash;
}

(async () => {
  for (let number = 0; ; number++) {
    const text = await askService(number);
    if (process.argv[4] === "render") {
      renderPage(text);
    }
    count();
  }
})();
