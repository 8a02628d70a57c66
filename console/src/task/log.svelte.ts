// The log of one task in the browser: read once, then only what is new. Events never change, so none is read twice.

import { ApiError, get } from "../api/client";
import type { LogEvent } from "../api/schema";
import { connection } from "../lib/live.svelte";
import { session } from "../lib/session.svelte";

const LIMIT = 500;
const POLL_MS = 500;
const RETRY_MS = 2000;

export class TaskLog {
  events = $state.raw<readonly LogEvent[]>([]);
  ended = $state(false);
  pruned = $state(false);
  loaded = $state(false);
  error = $state<string | null>(null);

  constructor(readonly id: string) {}

  /** Read on until the task has ended or `signal` is aborted. */
  async follow(signal: AbortSignal): Promise<void> {
    while (!signal.aborted) {
      let wait = POLL_MS;
      try {
        const more = await this.#read(signal);
        connection.answered();
        this.error = null;
        this.loaded = true;
        if (more) continue;
        if (this.ended) return;
      } catch (problem) {
        if (signal.aborted) return;
        const status = problem instanceof ApiError ? problem.status : 0;
        if (status === 404 || session.state !== "in") {
          this.error = problem instanceof Error ? problem.message : String(problem);
          return;
        }
        connection.failed();
        wait = RETRY_MS;
      }
      await pause(wait, signal);
    }
  }

  /** Read one page; returns whether there is more at once. */
  async #read(signal: AbortSignal): Promise<boolean> {
    const after = this.events.at(-1)?.seq ?? 0;
    const path = `/tasks/${encodeURIComponent(this.id)}/content`;
    const page = await get<"readContent">(path, { after, limit: LIMIT }, signal);
    if (page.events.length > 0) this.events = [...this.events, ...page.events];
    this.pruned ||= page.pruned === true;
    this.ended = page.ended && !page.next_after;
    return Boolean(page.next_after);
  }
}

function pause(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}
