// A worker in Node (20 or newer), without any package: greets, and asks for a name if it is told none and remembers none
// of the conversation. It finds its greeting in a step, which no later worker of the task repeats.
//
//     node examples/worker.mjs http://127.0.0.1:7870 greeter
//
// Set DRAGOMAN_API_KEY if the agent has a key. The worker waits while the server is away. docs/workers.md explains the
// calls.

import { setTimeout as sleep } from "node:timers/promises";

const [server, agent] = process.argv.slice(2);
const key = process.env.DRAGOMAN_API_KEY;

/** One call of the worker API, again and again while the server is away; null when there is nothing to answer. */
async function call(action, body) {
  const url = new URL(`/workers/${agent}/${action}`, server);
  const headers = { "Content-Type": "application/json", ...(key && { "x-api-key": key }) };
  for (;;) {
    try {
      const answer = await fetch(url, { method: "POST", headers, body: JSON.stringify(body) });
      const text = await answer.text();
      if (answer.ok) return text ? JSON.parse(text) : null;
      if (answer.status < 500) throw Object.assign(new Error(text), { status: answer.status });
    } catch (error) {
      if (error.status) throw error; // else no server answered
    }
    await sleep(1000);
  }
}

/** Send heartbeats until the work is done; aborts `gone` when nobody wants it any more. */
async function keep(lease, state, gone) {
  while (!state.done) {
    const pulse = await call("heartbeat", { lease, wait_s: 10 }).catch(() => ({ cancel: true }));
    if (pulse.cancel) return gone.abort();
  }
}

/** What the server must still have: the newest report that it answered, and the answer that we were given last. */
const known = ({ confirmed, heard }) => ({ confirmed, heard });

/** A numbered report: a repeated one counts once. */
async function report(action, lease, state, body) {
  await call(action, { lease, number: state.confirmed + 1, ...known(state), ...body });
  state.confirmed += 1;
}

/** Ask the caller, and wait for the answer however long it takes. */
async function ask(lease, state, question, message, gone) {
  while (!gone.signal.aborted) {
    const { answer } = await call("ask", { lease, question, message, wait_s: 15, ...known(state) });
    if (answer) {
      state.heard = answer.messageId;
      return text(answer);
    }
  }
}

/** Do something once: a later worker of the task gets the recorded result, under the same number. */
async function step(lease, number, name, work) {
  const known = await call("step", { lease, number, name });
  if (!known.run) return known.result;
  const result = await work(known.key); // the key is the same in every attempt, for whoever does the work
  await call("step-result", { lease, number, name, result });
  return result;
}

/** Get or set the name that the agent remembers of this conversation. Such calls are counted with the steps. */
const remembered = (lease, number, verb, value) => call("memory", { lease, number, verb, key: "name", value });

/** The work of a step: here it takes no time, in yours it may be a payment. */
const findGreeting = async (key) => "Hello, ";

const text = (message) => message.parts.map((part) => part.text ?? "").join(" ").trim();

async function work({ lease, message }, state, gone) {
  await report("update", lease, state, { message: "Thinking of a greeting", progress: { current: 1, total: 2 } });
  const { value: before } = await remembered(lease, 1, "get");
  const name = text(message) || before || (await ask(lease, state, 1, "Who are you?", gone));
  if (gone.signal.aborted) return;
  await remembered(lease, 2, "set", name);
  const greeting = await step(lease, 3, "find a greeting", findGreeting);
  for (const piece of [greeting, `${name}!`]) {
    const artifact = { artifactId: "greeting", parts: [{ text: piece }] };
    await report("artifact", lease, state, { artifact, append: true });
  }
  await call("complete", { lease, ...known(state) });
}

console.log(`Working for ${agent} at ${server}`);
for (;;) {
  const task = await call("lease", { worker: "worker.mjs", wait_s: 25, replays: true });
  if (!task) continue;
  const state = { done: false, confirmed: 0, heard: "" };
  const gone = new AbortController();
  keep(task.lease, state, gone);
  try {
    await work(task, state, gone);
  } catch (error) {
    const failure = { lease: task.lease, message: "No greeting was found.", ...known(state) };
    if (error.status !== 409) await call("fail", failure);
  } finally {
    state.done = true;
  }
}
