// The log of one task in the browser: read once, then only what is new, as soon as the server's stream of the log says
// that there is something. Events never change, so none is read twice. The newest are kept. The server folds those before
// them, so that a task opens as quickly with a hundred thousand events as with ten; a moment among them is read again.

import { ApiError, get } from "../api/client";
import type { LogEvent } from "../api/schema";
import { changes } from "../lib/changes.svelte";
import { session } from "../lib/session.svelte";
import { EMPTY, fold, recordOf, type TaskRecord } from "./record";

const LIMIT = 500;

/** So many events are kept at least, and half as many more at most; fewer if they have so many characters. */
const KEPT = 4000;
const KEPT_CHARACTERS = 16_000_000;

/** Of a log that is longer than `KEPT`, so many events are read at first, and so many around an earlier moment. */
const STRETCH = 1000;

/** Large events come in pages of fewer than `LIMIT`. Of a log that begins with such, so many pages are read. */
const STRETCH_PAGES = 4;

/** Reads are at least this far apart: what came meanwhile comes with the next one. */
const PAUSE_MS = 100;

/** While a reading brings so many events, another one is due anyway: being told of each would cost more than to look. */
const MANY = 40;

/** The log is read this often even if no stream can be had. */
const SLOWEST_MS = 3000;

/** Events that follow each other. `before` is the seq before the first one; `base` is the task after that, if known. */
export interface Stretch {
  readonly before: number;
  readonly base: TaskRecord | null;
  readonly events: readonly LogEvent[];
}

export class TaskLog {
  /** The newest events. */
  newest = $state.raw<Stretch>({ before: 0, base: EMPTY, events: [] });
  /** The task as it stands now. */
  record = $state.raw<TaskRecord>(EMPTY);
  ended = $state(false);
  /** The events up to this seq have been deleted. */
  pruned = $state(0);
  loaded = $state(false);
  /** The server has no such task, or none any more. */
  missing = $state(false);
  error = $state<string | null>(null);
  /** The events around an earlier moment that was looked at last. */
  #earlier = $state.raw<Stretch | null>(null);
  #seeking: number | null = null;
  #stretch = STRETCH;
  /** How many characters each of the newest events has. */
  #lengths: readonly number[] = [];

  /** Unless it is `streamed`, what is new is only looked for now and then. */
  constructor(
    readonly id: string,
    readonly streamed = true,
  ) {}

  /** The seq of the last event. */
  get last(): number {
    return this.newest.before + this.newest.events.length;
  }

  /** The events around the one with this seq, with the task before them; null if they must be sought first. */
  around(seq: number): Stretch | null {
    if (seq > this.newest.before) return this.newest.base === null ? null : this.newest;
    const found = this.#earlier;
    return found && found.before < seq && seq <= found.before + found.events.length ? found : null;
  }

  /** Read the events around the one with this seq. Of several moments that are asked for meanwhile the last one counts. */
  async seek(seq: number, signal: AbortSignal): Promise<void> {
    const busy = this.#seeking !== null;
    this.#seeking = seq;
    if (busy) return;
    try {
      while (!signal.aborted && this.#seeking !== null) {
        const wanted: number = this.#seeking;
        if (this.around(wanted) === null) await this.#readAround(wanted, signal);
        if (this.#seeking === wanted) this.#seeking = null;
      }
      this.error = null;
    } catch (problem) {
      if (!signal.aborted) this.error = problem instanceof Error ? problem.message : String(problem);
    } finally {
      this.#seeking = null;
    }
  }

  /** Read on until the task has ended or `signal` is aborted. */
  async follow(signal: AbortSignal): Promise<void> {
    let source: EventSource | undefined;
    let wake = (): void => undefined;
    let fresh: boolean;
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
          this.missing = status === 404 && !this.loaded;
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

  get #path(): string {
    return `/tasks/${encodeURIComponent(this.id)}`;
  }

  /** Call `heard` for each event after those that are known. */
  #hear(heard: () => void): EventSource {
    const source = new EventSource(`/admin/v1${this.#path}/log?after=${this.last}`);
    for (const name of ["event", "end", "pruned"]) source.addEventListener(name, heard);
    source.addEventListener("end", () => source.close());
    return source;
  }

  #add(added: readonly LogEvent[]): void {
    const { before, base } = this.newest;
    this.record = fold(
      added.filter((event) => event.seq > this.record.seq),
      this.record,
    );
    const events = [...this.newest.events, ...added];
    this.#lengths = [...this.#lengths, ...added.map(lengthOf)];
    const surplus = this.#surplus();
    this.#lengths = this.#lengths.slice(surplus);
    this.newest =
      surplus > 0
        ? {
            before: before + surplus,
            base: base && fold(events.slice(0, surplus), base),
            events: events.slice(surplus),
          }
        : { before, base, events };
  }

  /** How many of the newest events are too many. */
  #surplus(): number {
    const count = this.#lengths.length;
    let characters = 0;
    let kept = 0;
    while (kept < count && (kept === 0 || characters < KEPT_CHARACTERS)) {
      kept += 1;
      characters += this.#lengths[count - kept] ?? 0;
    }
    const wanted = Math.min(kept, KEPT);
    return count - wanted > wanted / 2 ? count - wanted : 0;
  }

  #begin(before: number, base: TaskRecord | null): void {
    this.newest = { before, base, events: [] };
    this.#lengths = [];
  }

  /** Read one page; returns whether there is more at once. */
  async #read(signal: AbortSignal): Promise<boolean> {
    const after = this.last;
    const page = await get<"readContent">(`${this.#path}/content`, { after, limit: LIMIT }, signal);
    if (page.pruned) {
      this.pruned = (page.events[0]?.seq ?? page.seq + 1) - 1;
      this.record = recordOf(await get<"readMoment">(`${this.#path}/moment`, {}, signal));
      this.#begin(this.pruned, EMPTY);
    }
    const cut = page.next_after != null && page.events.length < LIMIT;
    if (!this.loaded && cut) this.#stretch = Math.min(STRETCH, STRETCH_PAGES * page.events.length);
    // Only at first: a log that grows faster than the server folds it would be begun anew for ever.
    if (!this.loaded && page.seq - this.last > (cut ? this.#stretch : KEPT)) {
      this.record = recordOf(await get<"readMoment">(`${this.#path}/moment`, {}, signal));
      this.#begin(Math.max(this.last, page.seq - this.#stretch), null);
      this.loaded = true;
      return true;
    }
    if (page.events.length > 0) this.#add(page.events);
    this.ended = page.ended && !page.next_after;
    return Boolean(page.next_after);
  }

  async #readAround(seq: number, signal: AbortSignal): Promise<void> {
    const newest = seq > this.newest.before;
    const before = newest ? this.newest.before : Math.max(this.pruned, seq - Math.ceil(this.#stretch / 2));
    const [base, events] = await Promise.all([
      this.#readBase(before, signal),
      newest ? [] : this.#readStretch(before, signal),
    ]);
    if (!newest) this.#earlier = { before, base, events };
    else if (this.newest.before === before) this.newest = { ...this.newest, base };
  }

  async #readBase(seq: number, signal: AbortSignal): Promise<TaskRecord> {
    return seq === this.pruned ? EMPTY : recordOf(await get<"readMoment">(`${this.#path}/moment`, { seq }, signal));
  }

  async #readStretch(before: number, signal: AbortSignal): Promise<readonly LogEvent[]> {
    const found: LogEvent[] = [];
    let after: number | null | undefined = before;
    while (found.length < this.#stretch && after != null) {
      const page: { readonly events: readonly LogEvent[]; readonly next_after?: number | null } =
        await get<"readContent">(`${this.#path}/content`, { after, limit: LIMIT }, signal);
      found.push(...page.events);
      after = page.next_after;
    }
    return found;
  }
}

/** How many characters a value has, at any depth: names and data can be as long as texts. */
function lengthOf(value: unknown): number {
  if (typeof value === "string") return value.length;
  if (typeof value !== "object" || value === null) return 1;
  return Object.entries(value).reduce((sum, [key, each]) => sum + key.length + lengthOf(each), 0);
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
