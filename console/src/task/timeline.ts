// The rows of a timeline: an event each, but chunks of one artifact that follow each other are one row, and so are values
// that a run draws, or reads of its memory.

import type { LogEvent } from "../api/schema";
import { jsonOf } from "../lib/visible";

export interface Row {
  readonly first: LogEvent;
  readonly last: LogEvent;
  readonly chunks: number;
  readonly characters: number;
  /** How often each value was drawn or read, by its name; null for other events. */
  readonly drawn: Readonly<Record<string, number>> | null;
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
        drawn: drawnWith(last.drawn, event),
      };
      continue;
    }
    const at = event.at === null ? (last?.at ?? 0) : Date.parse(event.at);
    const drawn = isDrawn(event) ? drawnWith(null, event) : null;
    found.push({ first: event, last: event, chunks: 1, characters, drawn, at, sinceBefore: last ? at - last.at : 0 });
  }
  return { events, rows: found };
}

/** The step that is an answer of a model. Other names that begin with `$` are values, not work. */
export const MODEL_STEP = "$model";

export function isDrawn(event: LogEvent): boolean {
  return event.kind === "step" && event.step != null && event.step.startsWith("$") && event.step !== MODEL_STEP;
}

function drawnWith(before: Row["drawn"], event: LogEvent): Row["drawn"] {
  if (!isDrawn(event)) return before;
  const name = event.key && event.step === "$patched" ? `${event.step} ${event.key}` : (event.step ?? "");
  return { ...before, [name]: (before?.[name] ?? 0) + 1 };
}

function continues(before: LogEvent, event: LogEvent): boolean {
  if (isDrawn(before) && isDrawn(event)) return true;
  return (
    before.kind === "artifact" &&
    event.kind === "artifact" &&
    before.artifact?.artifactId === event.artifact?.artifactId
  );
}

function textLength(event: LogEvent): number {
  return (event.artifact?.parts ?? []).reduce((sum, part) => sum + (part.text?.length ?? part.raw?.length ?? 0), 0);
}

/** The steps that were begun, by the seq of that event, and of whose outcome the log says nothing. */
export function uncertainSteps(events: readonly LogEvent[]): ReadonlySet<number> {
  const begun: LogEvent[] = [];
  for (const event of events) {
    if (event.kind === "step-begun") begun.push(event);
    if (event.kind !== "step") continue;
    const exact = begun.findIndex((each) => each.step === event.step && each.at === event.began);
    const place = exact >= 0 ? exact : begun.findIndex((each) => each.step === event.step);
    if (place >= 0) begun.splice(place, 1);
  }
  return new Set(begun.map((each) => each.seq));
}

/** How long a step took with all of its attempts, in milliseconds. */
export function tookMs(event: LogEvent): number | null {
  return event.at != null && event.began != null ? Math.max(0, Date.parse(event.at) - Date.parse(event.began)) : null;
}

const SHORT_CHARACTERS = 160;

/** The beginning of the outcome of a step on one line, and whether that is all of it. */
export function outcome(event: LogEvent): { readonly text: string; readonly whole: boolean } {
  const parts = event.parts ?? [];
  const [first] = parts;
  const whole =
    event.failure ?? (first && typeof first.text !== "string" && "data" in first ? jsonOf(first.data) : first?.text);
  if (whole == null) return { text: first?.filename ?? (first ? "a file" : ""), whole: parts.length === 0 };
  const short = whole.length <= SHORT_CHARACTERS;
  return { text: short ? whole : `${whole.slice(0, SHORT_CHARACTERS)}…`, whole: short && parts.length <= 1 };
}

function shorten(text: string): string {
  return text.length > SHORT_CHARACTERS ? `${text.slice(0, SHORT_CHARACTERS)}…` : text;
}

/** The beginning of what an event says beside its progress. */
export function summary(event: LogEvent): string {
  const parts = event.message?.parts ?? event.artifact?.parts ?? [];
  const text = parts.find((part) => typeof part.text === "string" && part.text !== "")?.text;
  if (text) return text === event.progress?.[2] ? "" : shorten(text);
  const named = parts.find((part) => part.filename)?.filename;
  return named ?? (parts.length > 0 ? "data" : "");
}
