import { expect, test } from "vitest";

import type { DeliveryLine, LogEvent, TreeTask } from "../api/schema";
import { isSame, joined, lanesOf, spansOf, tellEnd, ticks, type Around, type Span } from "./spans";

const BEGAN = Date.parse("2026-11-01T10:00:00Z");
const at = (second: number): string => new Date(BEGAN + second * 1000).toISOString();
const event = (seq: number, second: number | null, more: object): LogEvent =>
  ({ seq, at: second === null ? null : at(second), ...more }) as LogEvent;
const status = (seq: number, second: number, state: string, more: object = {}): LogEvent =>
  event(seq, second, { kind: "status", state, ...more });
const ALONE: Around = { id: "t", standing: null, since: null, tree: [], deliveries: [] };

/** Spans as people would tell them: `steps weigh 1-2`. */
function told(spans: readonly Span[]): readonly string[] {
  return spans.map(
    (span) =>
      `${span.group} ${span.name} ${(span.from - BEGAN) / 1000}-${(span.to - BEGAN) / 1000}${span.open ? " open" : ""}`,
  );
}

test("a task waits to be run, runs, asks, sleeps and ends", () => {
  const events = [
    event(1, 0, { kind: "submitted" }),
    status(2, 1, "working"),
    status(3, 2, "input-required"),
    event(4, 5, { kind: "message" }),
    status(5, 5, "working"),
    status(6, 6, "working", { wakes: at(8) }),
    status(7, 9, "working"),
    status(8, 10, "completed", { duration_ms: 10_000 }),
  ];
  expect(told(spansOf(events, ALONE, BEGAN + 99_000))).toEqual([
    "run waits to be run 0-1",
    "run runs 1-2",
    "run waits for an answer 2-5",
    "run runs 5-6",
    "run sleeps 6-8",
    "run runs 8-9",
    "run runs 9-10",
  ]);
});

test("steps and tools last from their beginning to their outcome, or are open", () => {
  const tool = (id: string, phase: string): object => ({ tool: { id, name: "search", phase } });
  const events = [
    status(1, 0, "working"),
    event(2, 3, { kind: "step", step: "weigh", key: "tin", began: at(1), attempts: 2 }),
    event(3, 3, { kind: "step", step: "$now" }),
    event(4, 4, { kind: "step-begun", step: "pay" }),
    status(5, 5, "working", tool("a", "started")),
    status(6, 6, "working", tool("b", "started")),
    status(7, 7, "working", tool("a", "failed")),
  ];
  const spans = spansOf(events, ALONE, BEGAN + 9000);
  expect(told(spans)).toEqual([
    "run runs 0-9 open",
    "step weigh tin 1-3",
    "step pay 4-9 open",
    "tool search 5-7",
    "tool search 6-9 open",
  ]);
  expect(spans.map((span) => span.tone)).toEqual(["busy", "good", "warn", "bad", "busy"]);
});

test("delegations, artifacts in chunks and webhooks have their spans", () => {
  const child = { id: "c", parent: "t", agent: "echo", state: "completed", created_at: at(1), ended_at: at(3) };
  const far = { ...child, id: "d", parent: "c" };
  const call = { url: "https://h/x", host: "https://h", seq: 4, made: at(2), arrived: at(4), state: "delivered" };
  const chunk = (seq: number, last: boolean): LogEvent =>
    event(seq, null, { kind: "artifact", artifact: { artifactId: "a", parts: [] }, last_chunk: last });
  const events = [
    status(1, 0, "working"),
    chunk(2, false),
    chunk(3, true),
    status(4, 2, "completed", { duration_ms: 2000 }),
  ];
  const around = { ...ALONE, tree: [child, far] as TreeTask[], deliveries: [call] as unknown as DeliveryLine[] };
  expect(told(spansOf(events, around, BEGAN + 9000))).toEqual([
    "run runs 0-2",
    "delegation echo 1-3",
    "artifact a 0-2",
    "webhook https://h 2-4",
  ]);
});

test("a stretch of a long log begins as the task stood before it", () => {
  const around = { ...ALONE, standing: "working" as const, since: at(-5) };
  expect(told(spansOf([status(9, 1, "input-required")], around, BEGAN + 3000))).toEqual([
    "run runs -5-1",
    "run waits for an answer 1-3 open",
  ]);
  expect(spansOf([], ALONE, BEGAN)).toEqual([]);
});

const span = (from: number, to: number): Span => ({
  group: "step",
  name: `${from}`,
  from,
  to,
  open: false,
  tone: "good",
  note: "",
  seq: from,
  task: null,
  count: 1,
});

test("spans that overlap stand in lanes beside each other", () => {
  const lanes = lanesOf([span(0, 5), span(1, 3), span(3, 4), span(5, 6)]);
  expect(lanes.map((lane) => lane.map((each) => each.name))).toEqual([
    ["0", "5"],
    ["1", "3"],
  ]);
});

test("spans too short to be told apart are one, and no others", () => {
  const found = joined([span(0, 1), span(1, 2), span(3, 4), span(20, 60), span(60, 61)], 10);
  expect(found.map((each) => [each.from, each.to, each.count])).toEqual([
    [0, 4, 3],
    [20, 60, 1],
    [60, 61, 1],
  ]);
});

test("an axis has few marks, at round places", () => {
  expect(ticks(2500, 5)).toEqual([0, 500, 1000, 1500, 2000, 2500]);
  expect(ticks(7_200_000, 4)).toEqual([0, 1_800_000, 3_600_000, 5_400_000, 7_200_000]);
});

test("events amid others show no calls and tasks of other times", () => {
  const events = [status(5, 10, "working"), event(6, 12, { kind: "step", step: "weigh", began: at(11) })];
  expect([tellEnd(events), tellEnd([...events, status(7, 12, "failed")])]).toEqual([false, true]);
  const call = (made: number, arrived: number): DeliveryLine =>
    ({ host: "h", url: "u", made: at(made), arrived: at(arrived), state: "delivered", seq: 1 }) as DeliveryLine;
  const around = { ...ALONE, partial: true, deliveries: [call(1, 2), call(9, 11), call(20, 21)] };
  const spans = spansOf(events, around, BEGAN + 12_000);
  expect(told(spans)).toEqual(["run runs 10-12 open", "step weigh 11-12", "webhook h 9-11"]);
  const [first, second] = spans;
  expect(first && second && [isSame(first, { ...first, to: 0 }), isSame(first, second)]).toEqual([true, false]);
});
