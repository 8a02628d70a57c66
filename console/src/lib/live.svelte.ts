// Values that stay current: each is read again when the server says that something of its kind has changed, after a lost
// connection, and now and then.

import { ApiError } from "../api/client";
import type { TaskChange } from "../api/schema";
import { changes, type Topic } from "./changes.svelte";
import { session } from "./session.svelte";

/** Reads of one value are at least this far apart, and ever further while changes do not end. */
const PAUSE_MS = 500;
const PAUSE_MS_MAX = 2000;
const PAUSE_GROWTH = 1.25;

/** Numbers that no change announces, such as those of the process, are at most this old. */
const SLOWEST_MS = 10_000;

const NOT_FOUND = 404;

const RETRY_MS_MIN = 500;
const RETRY_MS_MAX = 8000;

export interface Live<T> {
  readonly value: T | undefined;
  readonly error: string | undefined;
  /** Read at once, or as soon as the reading under way has ended. */
  refresh(): void;
}

/**
 * Read a value now, and again after changes of `topics`, while the page can be seen. Call it while a component is made:
 * the reading follows the state that `read` uses, and ends with the component. It is at most `slowestMs` old. Of changes
 * of tasks only those count that it `concerns`.
 *
 * There is one reading at a time: whatever is asked for meanwhile is one more after it. Only a reading that nobody wants
 * any more, of other state or for a component that is gone, is aborted. What the server does not have (404) is not asked
 * for again.
 */
export function live<T>(
  read: (signal: AbortSignal) => Promise<T>,
  topics: readonly Topic[],
  slowestMs = SLOWEST_MS,
  concerns: (change: TaskChange) => boolean = () => true,
): Live<T> {
  let value = $state.raw<T | undefined>();
  let error = $state<string | undefined>();
  let refresh = (): void => undefined;

  $effect(() => {
    const stop = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    let retry = RETRY_MS_MIN;
    let pause = PAUSE_MS;
    let reading = false;
    let changed = false;
    let wanted = false;
    let gone = false;
    let lastMs = 0;

    const plan = (ms: number): void => {
      clearTimeout(timer);
      timer = setTimeout(turn, ms);
    };
    const turn = (): void => {
      if (document.hidden) document.addEventListener("visibilitychange", turn, { once: true, signal: stop.signal });
      else if (!reading) void look();
    };
    const look = async (): Promise<void> => {
      const sinceMs = Date.now() - lastMs;
      pause = changed && sinceMs < 2 * pause ? Math.min(pause * PAUSE_GROWTH, PAUSE_MS_MAX) : PAUSE_MS;
      reading = true;
      changed = false;
      wanted = false;
      try {
        const found = await read(stop.signal);
        if (stop.signal.aborted) return;
        value = found;
        error = undefined;
        retry = RETRY_MS_MIN;
        changes.answered();
        plan(wanted ? 0 : changed ? pause : slowestMs);
      } catch (problem) {
        if (stop.signal.aborted) return;
        const status = problem instanceof ApiError ? problem.status : 0;
        if (status === 0 || status >= 500) changes.failed();
        else changes.answered();
        error = problem instanceof Error ? problem.message : String(problem);
        if (session.state !== "in") return;
        if (status === NOT_FOUND) {
          gone = true; // it comes back for nobody: only `refresh` asks again
          return;
        }
        plan(retry);
        retry = Math.min(retry * 2, RETRY_MS_MAX);
      } finally {
        reading = false;
        lastMs = Date.now();
      }
    };

    refresh = () => {
      wanted = true;
      gone = false;
      if (!reading) plan(0);
    };
    const deaf = changes.listen(topics, (change) => {
      if (change !== undefined && !concerns(change)) return;
      changed = true;
      if (!reading && !gone) plan(Math.max(0, lastMs + pause - Date.now()));
    });
    void look();
    return () => {
      stop.abort();
      deaf();
      clearTimeout(timer);
    };
  });

  return {
    get value() {
      return value;
    },
    get error() {
      return error;
    },
    refresh: () => refresh(),
  };
}
