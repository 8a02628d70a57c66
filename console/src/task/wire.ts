// The wire by concept: what the clients of several dialects learn of each event, in rows that can be compared. Pure.

import type { Wire, WireFact } from "../api/schema";

export type Concept = WireFact["concept"];

/** The words for concepts. */
export const CONCEPTS: Readonly<Record<Concept, string>> = {
  task: "task id",
  context: "context id",
  state: "state",
  time: "time",
  progress: "progress",
  message: "message",
  question: "question",
  text: "text",
  file: "file",
  data: "data",
  tokens: "tokens",
  end: "end",
};

/** What is the same all the time is shown where a client is told for the first time, or is not told. */
const ONCE: readonly Concept[] = ["task", "context"];

/** What the client of one dialect is told with an event. */
export interface Told {
  readonly frames: readonly string[];
  readonly ids: readonly string[];
  /** Its client does not ask at that time, so that it learns of the event later. */
  readonly later: boolean;
}

/** A concept of an event: for each dialect the fact, or null if its client does not ask at that time. */
export interface ConceptRow {
  readonly concept: Concept;
  readonly facts: readonly (WireFact | null)[];
}

/** An event, or several that follow each other and are told alike: chunks of a text, or what no caller sees. */
export interface EventRow {
  readonly first: number;
  readonly last: number;
  readonly told: readonly Told[];
  readonly concepts: readonly ConceptRow[];
  /** How it stands by these events: a state, or that of a part of the answer. */
  readonly what: string;
}

/** Rows of the events of a page, by dialects in this order. */
export function wireRows(wire: Wire, dialects: readonly string[]): readonly EventRow[] {
  const seen = new Set<string>();
  const columns = dialects.map((name) => wire.dialects[name] ?? []);
  return (columns[0] ?? []).map(({ seq, last }, place) => {
    const events = columns.map((column) => column[place]);
    const known = events.some((event) => (event?.facts?.length ?? 0) > 0);
    const told = events.map((event): Told => {
      const later = known && (event?.facts?.length ?? 0) === 0;
      return { frames: event?.frames ?? [], ids: event?.ids ?? [], later };
    });
    const all = conceptRows(events.map((event, at) => (told[at]?.later ? null : (event?.facts ?? []))));
    const concepts = all.filter((row) => !ONCE.includes(row.concept) || isNew(row, seen));
    return { first: seq, last: Math.max(seq, last ?? seq), told, concepts, what: whatOf(all) };
  });
}

/** The rows of one event's concepts. A concept that an event has several times has as many rows. */
function conceptRows(facts: readonly (readonly WireFact[] | null)[]): readonly ConceptRow[] {
  const rows = new Map<string, { concept: Concept; facts: (WireFact | null)[] }>();
  facts.forEach((column, place) => {
    const times = new Map<Concept, number>();
    for (const fact of column ?? []) {
      const number = times.get(fact.concept) ?? 0;
      times.set(fact.concept, number + 1);
      const key = `${fact.concept} ${number}`;
      const row = rows.get(key) ?? { concept: fact.concept, facts: facts.map(() => null) };
      row.facts[place] = fact;
      rows.set(key, row);
    }
  });
  return [...rows.values()];
}

function isNew(row: ConceptRow, seen: Set<string>): boolean {
  const keys = row.facts.flatMap((fact, place) => (fact ? [`${place} ${fact.concept} ${learnedOf(fact)}`] : []));
  const fresh = keys.some((key) => !seen.has(key));
  for (const key of keys) seen.add(key);
  return fresh;
}

function whatOf(rows: readonly ConceptRow[]): string {
  const state = rows.find((row) => row.concept === "state")?.facts.find((fact) => fact && learnedOf(fact) === "same");
  if (state) return stateWord(state.value ?? "");
  return rows.length === 0 ? "" : "artifact";
}

/** A state as operators name it, however a dialect spells it. */
export function stateWord(spelled: string): string {
  return spelled
    .replace(/^TASK_STATE_/, "")
    .toLowerCase()
    .replaceAll("_", "-");
}

export function learnedOf(fact: WireFact): NonNullable<WireFact["learned"]> {
  return fact.learned ?? "nothing";
}

/** Whether a client learns something else than that of another dialect: then its cell is marked. */
export function differs(row: ConceptRow, place: number): boolean {
  const fact = row.facts[place];
  if (!fact || learnedOf(fact) === "same") return false;
  return learnedOf(fact) === "other" || row.facts.some((other) => other && learnedOf(other) === "same");
}

/** The bytes of a frame in a stream of Server-Sent Events, as text. */
export function rawFrame(id: string | undefined, frame: string): string {
  return `${id === undefined ? "" : `id: ${id}\n`}data: ${frame}\n\n`;
}

/** Text with `code` in it, as pieces: every other one is code. */
export function codePieces(text: string): readonly string[] {
  return text.split("`");
}
