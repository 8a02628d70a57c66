// The rows of a timeline: an event each, but chunks of one artifact that follow each other are one row.

import type { LogEvent } from "../api/schema";

export interface Row {
  readonly first: LogEvent;
  readonly last: LogEvent;
  readonly chunks: number;
  readonly characters: number;
  /** When the row came, in milliseconds since the epoch; that of the row before, if its events carry no time. */
  readonly at: number;
  readonly sinceBefore: number;
}

/** Rows, and the events that they are of. */
export interface Rows {
  readonly events: readonly LogEvent[];
  readonly rows: readonly Row[];
}

export const NO_ROWS: Rows = { events: [], rows: [] };

/**
 * The rows of events that continue those of `before`, if they do, and otherwise of all of them. Rows that stay as they
 * are stay the same objects, so that only the new ones are drawn.
 */
export function rows(events: readonly LogEvent[], before: Rows = NO_ROWS): Rows {
  const known = before.events.length;
  const continued = known > 0 && events[0] === before.events[0] && events[known - 1] === before.events[known - 1];
  const found = continued ? [...before.rows] : [];
  for (const event of continued ? events.slice(known) : events) {
    const last = found.at(-1);
    const characters = textLength(event);
    if (last !== undefined && continues(last.last, event)) {
      found[found.length - 1] = {
        ...last,
        last: event,
        chunks: last.chunks + 1,
        characters: last.characters + characters,
      };
      continue;
    }
    const at = event.at === null ? (last?.at ?? 0) : Date.parse(event.at);
    found.push({ first: event, last: event, chunks: 1, characters, at, sinceBefore: last ? at - last.at : 0 });
  }
  return { events, rows: found };
}

function continues(before: LogEvent, event: LogEvent): boolean {
  return (
    before.kind === "artifact" &&
    event.kind === "artifact" &&
    before.artifact?.artifactId === event.artifact?.artifactId
  );
}

function textLength(event: LogEvent): number {
  return (event.artifact?.parts ?? []).reduce((sum, part) => sum + (part.text?.length ?? part.raw?.length ?? 0), 0);
}

/** The beginning of what an event says. */
export function summary(event: LogEvent): string {
  const parts = event.message?.parts ?? event.artifact?.parts ?? [];
  const text = parts.find((part) => typeof part.text === "string" && part.text !== "")?.text;
  if (text) return text.length > 160 ? `${text.slice(0, 160)}…` : text;
  const named = parts.find((part) => part.filename)?.filename;
  return named ?? (parts.length > 0 ? "data" : "");
}
