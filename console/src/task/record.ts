// A task as it stands after some of its events. Pure, as in the server: what is shown at a moment of the replay is the
// fold of the events up to it, and nothing else.

import type { Artifact, LogEvent, Message, Moment, Part, Progress, Usage } from "../api/schema";
import type { State } from "../lib/states";

/** `dropped` counts the characters, and `droppedParts` the parts, that are kept no more, because there are too many. */
export interface Shown {
  readonly artifact: Artifact;
  readonly parts: readonly Part[];
  readonly open: boolean;
  readonly dropped: number;
  readonly droppedParts: number;
  /** How the text begins of which characters were dropped. */
  readonly beginning: string;
}

/** An artifact that grows keeps its end: at most so many characters of a text and parts, half of them beyond that. */
const CHARACTERS_MAX = 400_000;
const PARTS_MAX = 1000;

/** So much of the beginning is kept. */
const BEGINNING_CHARACTERS = 4000;

/** A message of the caller ends the sleep earlier if it `wakesOnMessage`. */
export interface Sleep {
  readonly until: string;
  readonly wakesOnMessage: boolean;
}

export interface TaskRecord {
  readonly seq: number;
  /** The one that the agent gave last; null if these events have none. */
  readonly title: string | null;
  readonly state: State;
  readonly at: string | null;
  readonly statusMessage: Message | null;
  readonly history: readonly Message[];
  readonly artifacts: readonly Shown[];
  readonly progress: Progress | null;
  readonly usage: Usage | null;
  readonly durationMs: number | null;
  /** Until when the task sleeps; null once it does something else. */
  readonly sleep: Sleep | null;
  /** How many came before those that are here. */
  readonly droppedArtifacts: number;
  readonly droppedMessages: number;
}

export const EMPTY: TaskRecord = {
  seq: 0,
  title: null,
  state: "submitted",
  at: null,
  statusMessage: null,
  history: [],
  artifacts: [],
  progress: null,
  usage: null,
  durationMs: null,
  sleep: null,
  droppedArtifacts: 0,
  droppedMessages: 0,
};

const INTERRUPTED: readonly State[] = ["input-required", "auth-required"];
const ENDS: readonly State[] = ["completed", "failed", "canceled", "rejected"];

/** A moment that the server has folded, as it stands here. */
export function recordOf(moment: Moment): TaskRecord {
  return {
    seq: moment.seq,
    title: null,
    state: moment.state ?? "submitted",
    at: moment.at ?? null,
    statusMessage: moment.status_message ?? null,
    history: moment.history ?? [],
    artifacts: (moment.artifacts ?? []).map(({ artifact, open, dropped, dropped_parts, beginning }) => ({
      artifact,
      parts: artifact.parts,
      open: open ?? false,
      dropped: dropped ?? 0,
      droppedParts: dropped_parts ?? 0,
      beginning: beginning ?? "",
    })),
    droppedArtifacts: moment.dropped_artifacts ?? 0,
    droppedMessages: moment.dropped_messages ?? 0,
    progress: moment.progress ?? null,
    usage: moment.usage ?? null,
    durationMs: moment.duration_ms ?? null,
    sleep: null,
  };
}

export function fold(events: readonly LogEvent[], from: TaskRecord = EMPTY): TaskRecord {
  return events.reduce(step, from);
}

export function step(record: TaskRecord, event: LogEvent): TaskRecord {
  const next = { ...record, seq: event.seq, at: event.at ?? record.at, sleep: null };
  switch (event.kind) {
    case "submitted":
      return { ...next, state: "submitted", history: event.message ? [event.message] : [] };
    case "message": {
      const question = INTERRUPTED.includes(record.state) && record.statusMessage ? [record.statusMessage] : [];
      const history = [...record.history, ...question, ...(event.message ? [event.message] : [])];
      return { ...next, history, sleep: record.sleep?.wakesOnMessage ? null : record.sleep };
    }
    case "status": {
      const state = event.state ?? record.state;
      const ended = ENDS.includes(state);
      return {
        ...next,
        state,
        statusMessage: event.message ?? null,
        progress: event.progress ?? record.progress,
        usage: event.usage ?? record.usage,
        durationMs: event.duration_ms ?? record.durationMs,
        sleep: event.wakes ? { until: event.wakes, wakesOnMessage: event.wakes_on_message ?? false } : null,
        artifacts: ended ? record.artifacts.map((shown) => ({ ...shown, open: false })) : record.artifacts,
      };
    }
    case "artifact":
      return event.artifact ? { ...next, artifacts: place(record.artifacts, event, event.artifact) } : next;
    case "step":
    case "delegated":
      return { ...next, usage: event.usage ?? record.usage };
    case "operator":
      return { ...next, sleep: record.sleep };
    case "titled":
      return { ...next, title: event.reason ?? null, sleep: record.sleep };
    case "step-begun":
    case "noted":
      return next;
    default:
      return next; // a newer server may log more
  }
}

/** Whether the task sleeps at a time, in milliseconds since the epoch, unless something has happened that is not known. */
export function sleepsAt(record: TaskRecord, now: number): boolean {
  return record.sleep !== null && Date.parse(record.sleep.until) > now;
}

function place(shown: readonly Shown[], event: LogEvent, artifact: Artifact): readonly Shown[] {
  const open = !(event.last_chunk ?? false);
  const index = shown.findIndex((each) => each.artifact.artifactId === artifact.artifactId);
  const before = shown[index];
  const dropped = event.dropped ?? 0;
  const beginning = event.beginning ?? "";
  const begun: Shown = { artifact, parts: artifact.parts, open, dropped, droppedParts: 0, beginning };
  if (before === undefined) return [...shown, begun];
  const placed =
    event.append === true
      ? grown(
          { ...before, dropped: before.dropped + dropped, beginning: before.beginning || beginning },
          artifact.parts,
          open,
        )
      : begun;
  return shown.map((each, at) => (at === index ? placed : each));
}

function grown(before: Shown, more: readonly Part[], open: boolean): Shown {
  let parts = joinParts(before.parts, more);
  let { dropped, droppedParts, beginning } = before;
  if (parts.length > PARTS_MAX) {
    const surplus = parts.length - PARTS_MAX / 2;
    parts = parts.slice(surplus);
    droppedParts += surplus;
  }
  const last = parts.at(-1);
  const length = last?.text?.length ?? 0;
  if (last?.text && length > CHARACTERS_MAX) {
    const surplus = length - CHARACTERS_MAX / 2;
    parts = [...parts.slice(0, -1), { ...last, text: last.text.slice(surplus) }];
    dropped += surplus;
    beginning ||= last.text.slice(0, BEGINNING_CHARACTERS);
  }
  return { ...before, parts, open, dropped, droppedParts, beginning };
}

/** The first part of a chunk continues the text before it, if both are plain text. */
export function joinParts(before: readonly Part[], more: readonly Part[]): readonly Part[] {
  const last = before.at(-1);
  const first = more[0];
  if (last === undefined || first === undefined || !isPlain(last) || !isPlain(first)) return [...before, ...more];
  return [...before.slice(0, -1), { ...last, text: `${last.text ?? ""}${first.text ?? ""}` }, ...more.slice(1)];
}

function isPlain(part: Part): boolean {
  return typeof part.text === "string" && !part.mediaType && !part.metadata && !part.filename;
}
