// @ts-check
// A stream of A2A 1.0 over HTTP+JSON that comes back by itself. No package is needed; it runs in browsers and in Node.

/**
 * @typedef {{task: string, last: string, text: string, state: string}} Seen what a client knows of a task, to be kept
 */

const ENDED = ["COMPLETED", "FAILED", "CANCELED", "REJECTED"].map((name) => `TASK_STATE_${name}`);
const WAITS = ["TASK_STATE_INPUT_REQUIRED", "TASK_STATE_AUTH_REQUIRED"];
const HEADERS = { "A2A-Version": "1.0", "Content-Type": "application/json" };
const PAUSE_MS = 500;

/** @param {Seen} seen */
export const settled = (seen) => ENDED.includes(seen.state) || WAITS.includes(seen.state);

/**
 * Send a message. Each time something is known anew, it is yielded; keep it, and `follow` goes on from there.
 * @param {string} agent the agent's URL
 * @param {string} text
 * @returns {AsyncGenerator<Seen>}
 */
export async function* send(agent, text) {
  const message = { messageId: crypto.randomUUID(), role: "ROLE_USER", parts: [{ text }] };
  const body = JSON.stringify({ message });
  /** @type {Seen} */
  let seen = { task: "", last: "", text: "", state: "" };
  // The id of the message makes it safe to send again: the server answers with the same task.
  while (!seen.task) {
    const request = () => fetch(`${agent}/message:stream`, { method: "POST", headers: HEADERS, body });
    for await (const next of once(request, seen)) yield (seen = next);
    if (!seen.task) await pause();
  }
  yield* follow(agent, seen);
}

/**
 * Go on from what is known, until the task has ended or waits for an answer.
 * @param {string} agent
 * @param {Seen} seen
 * @returns {AsyncGenerator<Seen>}
 */
export async function* follow(agent, seen) {
  while (!settled(seen)) {
    const headers = { ...HEADERS, "Last-Event-ID": seen.last };
    const request = () => fetch(`${agent}/tasks/${seen.task}:subscribe`, { headers });
    for await (const next of once(request, seen)) yield (seen = next);
    if (!settled(seen)) await pause();
  }
}

/**
 * Cancel a task.
 * @param {string} agent
 * @param {Seen} seen
 */
export const cancel = (agent, seen) => fetch(`${agent}/tasks/${seen.task}:cancel`, { method: "POST", headers: HEADERS });

/**
 * One connection, until it ends or breaks. Throws only for an answer that says the request is wrong.
 * @param {() => Promise<Response>} request
 * @param {Seen} seen
 * @returns {AsyncGenerator<Seen>}
 */
async function* once(request, seen) {
  const answer = await request().catch(() => null);
  if (!answer || answer.status >= 500) return; // nobody is there: try again
  if (!answer.ok || !answer.body) throw new Error((await answer.json()).error?.message ?? `status ${answer.status}`);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read().catch(() => ({ value: undefined, done: true }));
    if (done) return;
    const frames = (rest + value).split("\n\n");
    rest = frames.pop() ?? "";
    for (const frame of frames) {
      const fields = new Map(frame.split("\n").map((line) => /** @type {[string, string]} */ (line.split(/: ?(.*)/s, 2))));
      const data = fields.get("data");
      if (data) yield (seen = fold(seen, fields.get("id") ?? seen.last, JSON.parse(data)));
    }
  }
}

/**
 * What is known after an event.
 * @param {Seen} seen
 * @param {string} last
 * @param {any} event a StreamResponse
 * @returns {Seen}
 */
function fold(seen, last, event) {
  const { task, artifactUpdate, statusUpdate } = event;
  if (task) {
    const texts = (task.artifacts ?? []).flatMap((/** @type {any} */ each) => each.parts.map(textOf));
    return { task: task.id, last, text: texts.join(""), state: task.status.state };
  }
  if (artifactUpdate) {
    return { ...seen, last, text: seen.text + artifactUpdate.artifact.parts.map(textOf).join("") };
  }
  return { ...seen, last, state: statusUpdate?.status.state ?? seen.state };
}

const textOf = (/** @type {any} */ part) => part.text ?? "";
const pause = () => new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
