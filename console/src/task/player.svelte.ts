// The replay of a log: which of its events are shown, and the clock that shows one after the other.

import type { LogEvent } from "../api/schema";
import type { TaskLog } from "./log.svelte";

const GAP_MS_MAX = 10_000;
const TICK_MS = 33;

export const SPEEDS = [1, 2, 5, 10, 100] as const;

export class Player {
  /** Whether somebody replays the log: the bar is there as long as that. */
  open = $state(false);
  playing = $state(false);
  speed = $state<number>(1);
  /** The seq of the last event that is shown; null: all events, and those that still come. */
  shown = $state<number | null>(null);
  #timer: ReturnType<typeof setInterval> | undefined;

  constructor(private readonly log: TaskLog) {}

  /** The seq of the last event that is shown. */
  get position(): number {
    return this.shown ?? this.log.last;
  }

  /** The first seq that can be shown. */
  get first(): number {
    return this.log.pruned + 1;
  }

  show(seq: number): void {
    this.shown = seq >= this.log.last ? null : Math.max(this.first, seq);
    if (this.shown !== null) this.open = true;
  }

  /** Show the task as it stands. */
  end(): void {
    this.stop();
    this.shown = null;
  }

  close(): void {
    this.end();
    this.open = false;
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
    if (this.shown === null) this.show(this.first);
    this.playing = true;
    let waited = 0;
    this.#timer = setInterval(() => {
      let position = this.position;
      const here = this.log.around(position);
      if (here === null) return; // it is being read
      waited += TICK_MS * this.speed;
      const end = here.before + here.events.length;
      while (position < end) {
        const gap = gapAfter(here.events, position - here.before);
        if (waited < gap) break;
        waited -= gap;
        position += 1;
      }
      if (position >= this.log.last) {
        this.shown = null;
        this.stop();
      } else {
        this.shown = position < end ? position : position + 1; // the next events are read from here
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
