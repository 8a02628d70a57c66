// The spans of a task over time: how it stood, and what it did meanwhile. Pure. Spans of one group that overlap stand side
// by side, in lanes. Chunks of artifacts carry no time: they lie between the events around them.

import type { DeliveryLine, LogEvent, TreeTask } from "../api/schema";
import { TONES, type State, type Tone } from "../lib/states";
import { isDrawn, MODEL_STEP, uncertainSteps } from "./timeline";

export type Group = "run" | "step" | "tool" | "delegation" | "artifact" | "webhook";

/** In the order in which they are shown. */
export const GROUPS: readonly (readonly [Group, string])[] = [
  ["run", "Task"],
  ["step", "Steps"],
  ["tool", "Tools"],
  ["delegation", "Delegations"],
  ["artifact", "Artifacts"],
  ["webhook", "Webhooks"],
];

/** Times are in milliseconds since the epoch. */
export interface Span {
  readonly group: Group;
  readonly name: string;
  readonly from: number;
  readonly to: number;
  /** It goes on, or nobody knows how it ended. */
  readonly open: boolean;
  readonly tone: Tone;
  readonly note: string;
  /** The event that tells of it; 0 if none does. */
  readonly seq: number;
  /** The other task that it is. */
  readonly task: string | null;
  /** How many spans it stands for. */
  readonly count: number;
}

/** What is known beside the log. `standing` is how the task stood before the first of the events. */
export interface Around {
  readonly id: string;
  readonly standing: State | null;
  readonly since: string | null;
  readonly tree: readonly TreeTask[];
  readonly deliveries: readonly DeliveryLine[];
  /** Whether other events come before or after these: what only belongs to those is left out. */
  readonly partial?: boolean;
}

const PHASES: Readonly<Partial<Record<State, string>>> = {
  submitted: "waits to be run",
  working: "runs",
  "input-required": "waits for an answer",
  "auth-required": "waits for a sign-in",
};

interface Phase {
  readonly name: string;
  readonly tone: Tone;
  readonly from: number;
  readonly seq: number;
  /** When a sleep ends by itself. */
  readonly until: number;
}

/** All spans, in the order of their groups and of time. Those that are open last until `now`, or until the task's end. */
export function spansOf(events: readonly LogEvent[], around: Around, now: number): readonly Span[] {
  const times = timesOf(events, around.since === null ? null : Date.parse(around.since));
  const found: Span[] = [];
  const add = (group: Group, name: string, from: number, to: number, more: Partial<Span> = {}): void => {
    const plain = { open: false, tone: "plain" as Tone, note: "", seq: 0, task: null, count: 1 };
    found.push({ ...plain, group, name, from, to: Math.max(from, to), ...more });
  };
  const ended = events.findIndex((event) => event.kind === "status" && event.state && !(event.state in PHASES));
  const end = ended >= 0 ? (times[ended] ?? now) : now;
  const uncertain = uncertainSteps(events);
  const tools = new Map<string, { readonly name: string; readonly from: number; readonly seq: number }>();
  let phase = beginning(around, times[0] ?? now);

  const turn = (next: Phase | null, at: number): void => {
    if (phase !== null) {
      const woken = Math.min(at, phase.until);
      add("run", phase.name, phase.from, woken, { tone: phase.tone, seq: phase.seq });
      if (woken < at) add("run", "runs", woken, at, { tone: "busy", seq: phase.seq });
    }
    phase = next;
  };
  events.forEach((event, place) => {
    const at = times[place] ?? now;
    const begin = (state: State): Phase => ({
      name: PHASES[state] ?? "runs",
      tone: TONES[state],
      from: at,
      seq: event.seq,
      until: Infinity,
    });
    switch (event.kind) {
      case "submitted":
        turn(begin("submitted"), at);
        break;
      case "status":
        if (event.wakes) {
          turn({ name: "sleeps", tone: "rest", from: at, seq: event.seq, until: Date.parse(event.wakes) }, at);
        } else if (event.state && !(event.state in PHASES)) turn(null, at);
        else if (event.state && PHASES[event.state] !== phase?.name) turn(begin(event.state), at);
        break;
      case "message":
        if (phase?.name !== "runs" && phase?.name !== "waits to be run") turn(begin("working"), at);
        break;
      case "step":
        if (isDrawn(event)) break;
        add("step", stepName(event), event.began ? Date.parse(event.began) : at, at, {
          tone: event.failure ? "bad" : "good",
          note: (event.attempts ?? 1) > 1 ? `${event.attempts} attempts` : "",
          seq: event.seq,
        });
        break;
      case "step-begun":
        if (uncertain.has(event.seq)) {
          add("step", stepName(event), at, end, { open: true, tone: "warn", note: "no outcome", seq: event.seq });
        }
        break;
      default:
        break;
    }
    const tool = event.tool;
    if (tool?.phase === "started") tools.set(tool.id, { name: tool.name, from: at, seq: event.seq });
    else if (tool) {
      const begun = tools.get(tool.id);
      tools.delete(tool.id);
      const tone = tool.phase === "failed" ? "bad" : "good";
      add("tool", tool.name, begun?.from ?? at, at, { tone, seq: event.seq });
    }
  });
  if (phase !== null) {
    const { name, tone, from, seq } = phase as Phase;
    add("run", name, from, now, { open: true, tone, seq });
  }
  for (const { name, from, seq } of tools.values()) add("tool", name, from, end, { open: true, tone: "busy", seq });
  for (const child of around.tree.filter((each) => each.parent === around.id)) {
    const until = child.ended_at ?? child.upstream?.followed_until;
    add("delegation", child.agent, Date.parse(child.created_at), until ? Date.parse(until) : now, {
      open: !child.ended_at,
      tone: TONES[child.state],
      note: child.state,
      seq: events.find((event) => event.kind === "delegated" && event.task === child.id)?.seq ?? 0,
      task: child.elsewhere ? null : child.id,
    });
  }
  for (const grown of artifactSpans(events, times, end)) add("artifact", grown.name, grown.from, grown.to, grown);
  for (const call of around.deliveries) {
    const arrived = call.arrived ? Date.parse(call.arrived) : null;
    const made = Date.parse(call.made);
    add("webhook", call.host || call.url, made, arrived ?? (call.dead ? made : now), {
      open: call.state === "pending",
      tone: arrived !== null ? "good" : call.dead ? "bad" : "warn",
      note: call.http_status ? `HTTP ${call.http_status}` : call.reason,
      seq: call.seq,
    });
  }
  const order = GROUPS.map(([group]) => group);
  const first = times[0] ?? now;
  const there = around.partial ? found.filter((span) => span.to >= first && span.from <= now) : found;
  return there.sort((a, b) => order.indexOf(a.group) - order.indexOf(b.group) || a.from - b.from);
}

/** Whether these events tell of the end of the task. */
export function tellEnd(events: readonly LogEvent[]): boolean {
  return events.some((event) => event.kind === "status" && event.state && !(event.state in PHASES));
}

/** Whether both tell of the same: spans are made anew by the second. */
export function isSame(one: Span, other: Span): boolean {
  const fields = ["from", "seq", "group", "name", "task", "count"] as const;
  return fields.every((field) => one[field] === other[field]);
}

/** When each event came. Those without a time came between the ones around them, at the latest known moment. */
export function timesOf(events: readonly LogEvent[], before: number | null): readonly number[] {
  const first = events.find((event) => event.at)?.at;
  let last = before ?? (first ? Date.parse(first) : Date.now());
  return events.map((event) => (last = event.at ? Date.parse(event.at) : last));
}

function beginning(around: Around, at: number): Phase | null {
  if (around.standing === null || !(around.standing in PHASES)) return null;
  const from = around.since === null ? at : Date.parse(around.since);
  const name = PHASES[around.standing] ?? "runs";
  return { name, tone: TONES[around.standing], from, seq: 0, until: Infinity };
}

function stepName(event: LogEvent): string {
  const name = event.step === MODEL_STEP ? "the model" : (event.step ?? "");
  return event.key ? `${name} ${event.key}` : name;
}

/** Artifacts that come in chunks: from the last known moment before the first chunk to the first one after the last. */
function artifactSpans(events: readonly LogEvent[], times: readonly number[], end: number): readonly Span[] {
  const grown = new Map<string, Span>();
  const next: (number | undefined)[] = [];
  for (let place = events.length - 1, known: number | undefined; place >= 0; place -= 1) {
    next[place] = known;
    const at = events[place]?.at;
    if (at) known = Date.parse(at);
  }
  events.forEach((event, place) => {
    if (event.kind !== "artifact" || !event.artifact) return;
    const id = event.artifact.artifactId;
    const to = next[place] ?? end;
    const before = grown.get(id);
    grown.set(id, {
      group: "artifact",
      name: event.artifact.name ?? before?.name ?? id,
      from: before?.from ?? times[place] ?? to,
      to,
      open: !event.last_chunk && next[place] === undefined,
      tone: "plain",
      note: "",
      seq: event.seq,
      task: null,
      count: 1,
    });
  });
  return [...grown.values()];
}

/** The spans of each lane of a group: in a lane none begins before the one before it has ended. */
export function lanesOf(spans: readonly Span[]): readonly (readonly Span[])[] {
  const lanes: Span[][] = [];
  for (const span of spans) {
    const lane = lanes.find((each) => (each.at(-1)?.to ?? 0) <= span.from);
    if (lane) lane.push(span);
    else lanes.push([span]);
  }
  return lanes;
}

/** A lane in which spans that are too short to be told apart are one, if they follow each other as closely. */
export function joined(lane: readonly Span[], shortest: number): readonly Span[] {
  const found: Span[] = [];
  for (const span of lane) {
    const last = found.at(-1);
    const small = span.to - span.from < shortest && span.from - (last?.to ?? -Infinity) < shortest;
    if (last && small && (last.count > 1 || last.to - last.from < shortest)) {
      found[found.length - 1] = {
        ...last,
        to: span.to,
        open: span.open,
        tone: span.tone === "bad" ? "bad" : last.tone,
        count: last.count + span.count,
        task: null,
      };
    } else found.push(span);
  }
  return found;
}

const STEPS_MS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 15_000, 30_000].concat(
  [1, 2, 5, 10, 15, 30, 60, 120, 180, 360, 720, 1440, 2880, 7200, 14_400, 43_200].map((minutes) => minutes * 60_000),
);

/** Marks of an axis from 0 to `length` milliseconds: at most so many, at round places. */
export function ticks(length: number, most: number): readonly number[] {
  const step = STEPS_MS.find((each) => length / each <= most) ?? length / most;
  return Array.from({ length: Math.floor(length / step) + 1 }, (_, place) => place * step);
}
