#!/usr/bin/env node
// An agent in Node: plans a trip, and asks for missing details. Its input stays open for the answers.
//
//   [[agents]]
//   id = "trip"
//   run = "command:node examples/trip.mjs"
//   input = "lines"

import { createInterface } from "node:readline";

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const next = async () => JSON.parse((await lines.next()).value);
const say = (what) => process.stdout.write(JSON.stringify(what) + "\n");

const task = await next();
const ask = async (question) => {
  say({ ask: question });
  return (await next()).text;
};

const city = task.text || (await ask("Where do you want to go?"));
const days = Number(await ask(`How many days in ${city}?`));
if (!Number.isInteger(days) || days < 1 || days > 30) {
  say({ reject: "A trip takes 1 to 30 days." });
  process.exit(0);
}

for (let day = 1; day <= days; day += 1) {
  say({ progress: [day, days], text: `Planning day ${day}` });
  say({ text: `Day ${day}: a walk in ${city}.\n` });
}
say({ artifact: { name: "trip.json", parts: [{ data: { city, days } }] } });
say({ usage: { input: 12, output: 30 } });
process.exit(0);
