// The log of one task in the browser: read once, then only what is new, as soon as the server's stream of the log says
// that there is something. Events never change, so none is read twice. The newest are kept; those before them are folded
// into the task as it stood then, so that a long log takes no more memory than a short one.

import { ApiError, get } from "../api/client";
import type { LogEvent } from "../api/schema";
import { changes } from "../lib/changes.svelte";
import { session } from "../lib/session.svelte";
import { EMPTY, fold, type TaskRecord } from "./record";

const LIMIT = 500;

/** So many events are kept at least, and half as many more at most. */
const KEPT = 4000;

/** Reads are at least this far apart: what came meanwhile comes with the next one. */
const PAUSE_MS = 100;

/** While a reading brings so many events, another one is due anyway: being told of each would cost more than to look. */
const MANY = 40;

/** The log is read this often even if no stream can be had. */
const SLOWEST_MS = 3000;

export class TaskLog {
  /** The newest events. */
  events = $state.raw<readonly LogEvent[]>([]);
  /** How many events before these are kept no more, and the task as it stood after them. */
  folded = $state.raw<{ readonly count: number; readonly record: TaskRecord }>({ count: 0, record: EMPTY });
  /** The task as it stands now. */
  record = $state.raw<TaskRecord>(EMPTY);
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
        let many = false;
        try {
          const known = this.record.seq;
          const more = await this.#read(signal);
          changes.answered();
          this.error = null;
          this.loaded = true;
          if (more) continue;
          if (this.ended) return;
          many = this.record.seq - known >= MANY;
        } catch (problem) {
          if (signal.aborted) return;
          const status = problem instanceof ApiError ? problem.status : 0;
          if (status === 404 || session.state !== "in") {
            this.error = problem instanceof Error ? problem.message : String(problem);
            return;
          }
          changes.failed();
        }
        if (many) {
          source?.close();
          source = undefined;
        } else if (this.streamed) {
          source ??= this.#hear(() => {
            fresh = true;
            wake();
          });
        }
        await pause(PAUSE_MS, signal);
        if (fresh || many) continue;
        await pause(SLOWEST_MS, signal, (early) => (wake = early));
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

  #add(added: readonly LogEvent[]): void {
    this.record = fold(added, this.record);
    const events = [...this.events, ...added];
    const surplus = events.length - KEPT;
    if (surplus > KEPT / 2) {
      const { count, record } = this.folded;
      this.folded = { count: count + surplus, record: fold(events.slice(0, surplus), record) };
      this.events = events.slice(surplus);
    } else {
      this.events = events;
    }
  }

  /** Read one page; returns whether there is more at once. */
  async #read(signal: AbortSignal): Promise<boolean> {
    const after = this.events.at(-1)?.seq ?? 0;
    const path = `/tasks/${encodeURIComponent(this.id)}/content`;
    const page = await get<"readContent">(path, { after, limit: LIMIT }, signal);
    if (page.events.length > 0) this.#add(page.events);
    this.pruned ||= page.pruned === true;
    this.ended = page.ended && !page.next_after;
    return Boolean(page.next_after);
  }
}

/** Wait so long, or until `signal` is aborted, or the function that `waits` is given is called. */
function pause(ms: number, signal: AbortSignal, waits?: (early: () => void) => void): Promise<void> {
  return new Promise((resolve) => {
    const end = (): void => {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    signal.addEventListener("abort", end);
    waits?.(end);
  });
}
