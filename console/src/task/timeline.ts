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

export function rows(events: readonly LogEvent[]): readonly Row[] {
  const found: Row[] = [];
  for (const event of events) {
    const before = found.at(-1);
    const characters = textLength(event);
    if (before !== undefined && continues(before.last, event)) {
      found[found.length - 1] = {
        ...before,
        last: event,
        chunks: before.chunks + 1,
        characters: before.characters + characters,
      };
      continue;
    }
    const at = event.at === null ? (before?.at ?? 0) : Date.parse(event.at);
    found.push({ first: event, last: event, chunks: 1, characters, at, sinceBefore: before ? at - before.at : 0 });
  }
  return found;
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
