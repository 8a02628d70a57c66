// @ts-check
import { cancel, follow, send, settled } from "./stream.mjs";

/** @import { Seen } from "./stream.mjs" */

const agent = new URLSearchParams(location.search).get("agent") ?? "http://127.0.0.1:7870/agents/countdown";
const KEY = `seen ${agent}`;

const [form, input, stop, status, output] = /** @type {[HTMLFormElement, HTMLInputElement, HTMLButtonElement, HTMLElement, HTMLElement]} */ (
  ["form", "input", "#cancel", "[role=status]", "pre"].map((selector) => document.querySelector(selector))
);

/** @type {Seen | null} */
let now = JSON.parse(sessionStorage.getItem(KEY) ?? "null");

/** @param {AsyncGenerator<Seen>} stream */
async function show(stream) {
  try {
    for await (const seen of stream) {
      now = seen;
      sessionStorage.setItem(KEY, JSON.stringify(seen)); // what a page that is loaded anew goes on from
      draw();
    }
  } catch (error) {
    status.textContent = String(error);
  }
}

function draw() {
  if (!now) return;
  status.textContent = now.state.replace("TASK_STATE_", "").toLowerCase();
  output.textContent = now.text;
  stop.disabled = settled(now);
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  void show(send(agent, input.value));
});
stop.addEventListener("click", () => now && void cancel(agent, now));

draw();
if (now && !settled(now)) void show(follow(agent, now));
