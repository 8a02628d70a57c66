// Values that stay current. Each is read again when the server says that something changed, and after a lost connection.

import { ApiError } from "../api/client";
import { session } from "./session.svelte";

const RETRY_MS_MIN = 500;
const RETRY_MS_MAX = 8000;

/** Whether the server answers. Every failed read says so to everybody. */
class Connection {
  lost = $state(false);
  lostSince = $state(0);

  failed(): void {
    if (!this.lost) this.lostSince = Date.now();
    this.lost = true;
  }

  answered(): void {
    this.lost = false;
  }
}

export const connection = new Connection();

export interface Live<T> {
  readonly value: T | undefined;
  readonly error: string | undefined;
  refresh(): void;
}

/**
 * Read a value now and every `everyMs` while the page can be seen. Call it while a component is made: the reading
 * follows the state that `read` uses, and ends with the component.
 */
export function live<T>(read: (signal: AbortSignal) => Promise<T>, everyMs: () => number): Live<T> {
  let value = $state.raw<T | undefined>();
  let error = $state<string | undefined>();
  let asked = $state(0);

  $effect(() => {
    void asked;
    const stop = new AbortController();
    let timer: ReturnType<typeof setTimeout> | undefined;
    let wait = RETRY_MS_MIN;

    const turn = async (): Promise<void> => {
      try {
        const found = await read(stop.signal);
        if (stop.signal.aborted) return;
        value = found;
        error = undefined;
        wait = RETRY_MS_MIN;
        connection.answered();
        timer = setTimeout(again, everyMs());
      } catch (problem) {
        if (stop.signal.aborted) return;
        const status = problem instanceof ApiError ? problem.status : 0;
        if (status === 0 || status >= 500) connection.failed();
        else connection.answered();
        error = problem instanceof Error ? problem.message : String(problem);
        if (session.state !== "in") return;
        timer = setTimeout(again, wait);
        wait = Math.min(wait * 2, RETRY_MS_MAX);
      }
    };
    const again = (): void => {
      if (document.hidden) document.addEventListener("visibilitychange", again, { once: true, signal: stop.signal });
      else void turn();
    };
    void turn();
    return () => {
      stop.abort();
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
    refresh() {
      asked += 1;
    },
  };
}
