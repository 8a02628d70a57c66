import { expect, test } from "vitest";

import type { Wire, WireFact } from "../api/schema";
import { differs, rawFrame, wireRows } from "./wire";

const fact = (concept: string, value: string, more: object = {}): WireFact =>
  ({ concept, learned: "same", path: `p.${concept}`, value, ...more }) as WireFact;
const nothing = (concept: string): WireFact => ({ concept }) as WireFact;
const event = (seq: number, ...facts: WireFact[]): object => ({ seq, frames: ["{}"], ids: [`${seq}`], facts });
const unseen = (seq: number): object => ({ seq, frames: [], ids: [], facts: [] });
const wire = (dialects: Record<string, object[]>): Wire => ({ dialects, seq: 9, ended: true }) as unknown as Wire;

test("rows stand by concept, and mark only where a client learns something else", () => {
  const [row] = wireRows(
    wire({
      "1.0": [event(1, fact("state", "TASK_STATE_AUTH_REQUIRED"), fact("progress", "{}"), nothing("tokens"))],
      evoai: [event(1, fact("state", "input-required", { learned: "other" }), nothing("progress"), nothing("tokens"))],
    }),
    ["1.0", "evoai"],
  );
  expect(row?.what).toBe("auth-required");
  expect(row?.concepts.map((each) => [each.concept, differs(each, 0), differs(each, 1)])).toEqual([
    ["state", false, true],
    ["progress", false, true],
    ["tokens", false, false],
  ]);
});

test("an event stands for those after it that are told alike", () => {
  const chunk = { ...event(3, fact("text", "x")), last: 90 };
  const rows = wireRows(wire({ "1.0": [event(2, fact("state", "working")), chunk, unseen(91)] }), ["1.0"]);
  expect(rows.map((row) => [row.first, row.last, row.what])).toEqual([
    [2, 2, "working"],
    [3, 90, "artifact"],
    [91, 91, ""],
  ]);
});

test("ids are shown where a client is told first, and where it is not told", () => {
  const ids = (seq: number, id: WireFact): object => event(seq, id, fact("state", "working"));
  const told = fact("task", "t");
  const rows = wireRows(wire({ "1.0": [ids(1, told), ids(2, told), ids(3, nothing("task")), ids(4, told)] }), ["1.0"]);
  expect(rows.map((row) => row.concepts.map((each) => each.concept))).toEqual([
    ["task", "state"],
    ["state"],
    ["task", "state"],
    ["state"],
  ]);
});

test("a client that asks now and then learns of a chunk later", () => {
  const [row] = wireRows(wire({ "1.0": [event(1, fact("text", "x"))], kaos: [unseen(1)] }), ["1.0", "kaos"]);
  expect(row?.told.map((each) => each.later)).toEqual([false, true]);
  expect(row?.concepts[0]?.facts[1]).toBeNull();
});

test("a frame is shown with the lines of its stream", () => {
  expect(rawFrame("7.1", "{}")).toBe("id: 7.1\ndata: {}\n\n");
});
