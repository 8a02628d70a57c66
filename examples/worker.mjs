// A worker in Node (20 or newer), without any package: greets, and asks for a name if it is not told one.
//
//     node examples/worker.mjs http://127.0.0.1:7870 greeter
//
// Set DRAGOMAN_API_KEY if the agent has a key. docs/workers.md explains the calls.

const [server, agent] = process.argv.slice(2);
const key = process.env.DRAGOMAN_API_KEY;

/** One call of the worker API; null when there is nothing to answer. */
async function call(action, body) {
  const answer = await fetch(new URL(`/workers/${agent}/${action}`, server), {
    method: "POST",
    headers: { "Content-Type": "application/json", ...(key && { "x-api-key": key }) },
    body: JSON.stringify(body),
  });
  const text = await answer.text();
  if (!answer.ok) throw Object.assign(new Error(text), { status: answer.status });
  return text ? JSON.parse(text) : null;
}

/** Send heartbeats until the work is done; aborts `gone` when nobody wants it any more. */
async function keep(lease, state, gone) {
  while (!state.done) {
    const pulse = await call("heartbeat", { lease, wait_s: 10 }).catch(() => ({ cancel: true }));
    if (pulse.cancel) return gone.abort();
  }
}

/** Ask the caller, and wait for the answer however long it takes. */
async function ask(lease, question, message, gone) {
  while (!gone.signal.aborted) {
    const { answer } = await call("ask", { lease, question, message, wait_s: 15 });
    if (answer) return text(answer);
  }
}

const text = (message) => message.parts.map((part) => part.text ?? "").join(" ").trim();

async function work({ lease, message }, gone) {
  await call("update", { lease, message: "Thinking of a greeting", progress: { current: 1, total: 2 } });
  const name = text(message) || (await ask(lease, 1, "Who are you?", gone));
  if (gone.signal.aborted) return;
  for (const piece of ["Hello, ", `${name}!`]) {
    const artifact = { artifactId: "greeting", parts: [{ text: piece }] };
    await call("artifact", { lease, artifact, append: true });
  }
  await call("complete", { lease });
}

console.log(`Working for ${agent} at ${server}`);
for (;;) {
  const task = await call("lease", { worker: "worker.mjs", wait_s: 25, replays: true });
  if (!task) continue;
  const state = { done: false };
  const gone = new AbortController();
  keep(task.lease, state, gone);
  try {
    await work(task, gone);
  } catch (error) {
    if (error.status !== 409) await call("fail", { lease: task.lease, message: "No greeting was found." });
  } finally {
    state.done = true;
  }
}
