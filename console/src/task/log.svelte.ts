// The log of one task in the browser: read once, then only what is new, as soon as the server's stream of the log says
// that there is something. Events never change, so none is read twice.

import { ApiError, get } from "../api/client";
import type { LogEvent } from "../api/schema";
import { changes } from "../lib/changes.svelte";
import { session } from "../lib/session.svelte";

const LIMIT = 500;

/** Reads are at least this far apart: what came meanwhile comes with the next one. */
const PAUSE_MS = 100;

/** The log is read this often even if no stream can be had. */
const SLOWEST_MS = 3000;

export class TaskLog {
  events = $state.raw<readonly LogEvent[]>([]);
  ended = $state(false);
  pruned = $state(false);
  loaded = $state(false);
  error = $state<string | null>(null);

  /** Unless it is `streamed`, what is new is only looked for now and then. */
  constructor(
    readonly id: string,
    readonly streamed = true,
  ) {}

  /** Read on until the task has ended or `signal` is aborted. */
  async follow(signal: AbortSignal): Promise<void> {
    let source: EventSource | undefined;
    let wake = (): void => undefined;
    let fresh = false;
    try {
      while (!signal.aborted) {
        fresh = false;
        try {
          const more = await this.#read(signal);
          changes.answered();
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
          changes.failed();
        }
        if (this.streamed) {
          source ??= this.#hear(() => {
            fresh = true;
            wake();
          });
        }
        await pause(PAUSE_MS, signal);
        if (fresh) continue;
        await new Promise<void>((resolve) => {
          wake = resolve;
          void pause(SLOWEST_MS, signal).then(resolve);
        });
      }
    } finally {
      source?.close();
    }
  }

  /** Call `heard` for each event after those that are known. */
  #hear(heard: () => void): EventSource {
    const after = this.events.at(-1)?.seq ?? 0;
    const source = new EventSource(`/admin/v1/tasks/${encodeURIComponent(this.id)}/log?after=${after}`);
    for (const name of ["event", "end", "pruned"]) source.addEventListener(name, heard);
    source.addEventListener("end", () => source.close());
    return source;
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
