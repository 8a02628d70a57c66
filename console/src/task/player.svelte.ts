// The replay of a log: how many of its events are shown, and the clock that shows one after the other.

import type { LogEvent } from "../api/schema";

const GAP_MS_MAX = 10_000;
const TICK_MS = 33;

export const SPEEDS = [1, 2, 5, 10, 100] as const;

export class Player {
  playing = $state(false);
  speed = $state<number>(1);
  /** How many events are shown, counted from the log's first one. */
  #at = $state<number | null>(null);
  #timer: ReturnType<typeof setInterval> | undefined;

  /** `before` is how many events came before the first of `events`. */
  constructor(
    private readonly events: () => readonly LogEvent[],
    private readonly before: () => number,
  ) {}

  /** How many of the events are shown; null: all of them, and those that still come. */
  get shown(): number | null {
    return this.#at === null ? null : Math.max(1, this.#at - this.before());
  }

  set shown(position: number | null) {
    this.#at = position === null ? null : position + this.before();
  }

  get position(): number {
    return this.shown ?? this.events().length;
  }

  show(position: number): void {
    this.shown = position >= this.events().length ? null : Math.max(1, position);
  }

  toggle(): void {
    if (this.playing) this.stop();
    else this.#play();
  }

  stop(): void {
    this.playing = false;
    clearInterval(this.#timer);
  }

  #play(): void {
    if (this.shown === null) this.shown = Math.min(1, this.events().length);
    this.playing = true;
    let waited = 0;
    this.#timer = setInterval(() => {
      waited += TICK_MS * this.speed;
      const events = this.events();
      let position = this.position;
      while (position < events.length) {
        const gap = gapAfter(events, position);
        if (waited < gap) break;
        waited -= gap;
        position += 1;
      }
      if (position >= events.length) {
        this.shown = null;
        this.stop();
      } else {
        this.shown = position;
      }
    }, TICK_MS);
  }
}

/**
 * How long the event at `position` came after the one before it. Chunks carry no time: those between two events with
 * one are spread evenly. Long waits, as for an answer of a person, are shortened.
 */
export function gapAfter(events: readonly LogEvent[], position: number): number {
  let from = position - 1;
  while (from > 0 && !events[from]?.at) from -= 1;
  let to = position;
  while (to < events.length - 1 && !events[to]?.at) to += 1;
  const start = events[from]?.at;
  const end = events[to]?.at;
  if (!start || !end) return TICK_MS;
  const gap = (Date.parse(end) - Date.parse(start)) / Math.max(1, to - from);
  return Math.min(Math.max(gap, 0), GAP_MS_MAX);
}
