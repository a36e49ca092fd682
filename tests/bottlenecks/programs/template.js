// Fills templates: the names in a text are replaced, one after the other.
"use strict";
const { count } = require("./operations.js");

const names = Array.from({ length: 300 }, (_, i) => `name${i}`);
const text = names.map((name) => `<p>dear {{${name}}}, we write to you</p>`).join("\n");

function fillTemplate(template, values) {
  let page = template;
  for (const name of Object.keys(values)) {
    page = page.split(`{{${name}}}`).join(values[name]);
  }
  return page;
}

const values = Object.fromEntries(names.map((name, i) => [name, `value ${i}`]));
let sum = 0;
for (;;) {
  sum += fillTemplate(text, values).length;
  count();
}
