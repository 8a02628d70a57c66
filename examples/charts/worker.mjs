// @ts-check
// A worker in Node (20 or newer), without any package: draws the numbers in a message as a bar chart.
//
//     node examples/charts/worker.mjs http://127.0.0.1:7870 charts
//
// Set DRAGOMAN_API_KEY if the agent has a key. docs/workers.md explains the calls.

import { chart } from "./chart.mjs";

/** @typedef {{lease: string, expires_s: number, message: {parts: {text?: string, data?: unknown}[]}}} Task */

const [server, agent] = process.argv.slice(2);
const key = process.env.DRAGOMAN_API_KEY;
const stopping = new AbortController();
for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => stopping.abort());

/**
 * One call of the worker API. While the server is away it is made again, for as long as a lease may last.
 * @param {string} action
 * @param {Record<string, unknown>} body
 * @param {AbortSignal} [signal]
 * @returns {Promise<any>} null where there is nothing to answer
 */
async function call(action, body, signal) {
  for (let attempt = 1; ; attempt++) {
    const answer = await fetch(new URL(`/workers/${agent}/${action}`, server), {
      method: "POST",
      headers: { "Content-Type": "application/json", ...(key ? { "x-api-key": key } : {}) },
      body: JSON.stringify(body),
      signal,
    }).catch((error) => {
      if (signal?.aborted) throw error;
      return null;
    });
    if (answer?.ok) {
      const text = await answer.text();
      return text ? JSON.parse(text) : null;
    }
    if ((answer && answer.status < 500) || attempt === 20) {
      throw Object.assign(new Error(answer ? await answer.text() : `${server} does not answer`), { status: answer?.status });
    }
    await new Promise((resolve) => setTimeout(resolve, Math.min(100 * 2 ** attempt, 2000)));
  }
}

/**
 * Keep the lease until `done` is aborted.
 * @param {Task} task
 * @param {AbortSignal} done
 */
async function keep(task, done) {
  while (!done.aborted) {
    await call("heartbeat", { lease: task.lease, wait_s: 10 }, done).catch(() => undefined);
  }
}

/** @param {Task} task */
async function draw(task) {
  const part = task.message.parts.find((each) => each.data !== undefined);
  const text = task.message.parts.map((each) => each.text ?? "").join("");
  const svg = chart(part ? part.data : JSON.parse(text));
  const raw = Buffer.from(svg).toString("base64");
  const file = { raw, filename: "chart.svg", mediaType: "image/svg+xml" };
  return { artifactId: "chart", name: "chart.svg", parts: [file] };
}

console.log(`Working for ${agent} at ${server}`);
while (!stopping.signal.aborted) {
  const task = await call("lease", { worker: `charts-${process.pid}`, wait_s: 25 }, stopping.signal).catch((error) => {
    if (stopping.signal.aborted) return null;
    throw error;
  });
  if (!task) continue;
  const done = new AbortController();
  const kept = keep(task, done.signal);
  try {
    await call("complete", { lease: task.lease, artifacts: [await draw(task)] });
  } catch (error) {
    const fault = /** @type {Error & {status?: number}} */ (error);
    // 409: the task was canceled, or has gone to another worker.
    if (fault.status !== 409) await call("fail", { lease: task.lease, message: `No chart: ${fault.message}` });
  } finally {
    done.abort();
    await kept;
  }
}
