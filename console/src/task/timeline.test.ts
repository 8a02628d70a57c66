import { expect, test } from "vitest";

import type { LogEvent } from "../api/schema";
import { rows, summary, uncertainSteps } from "./timeline";

const event = (seq: number, more: object): LogEvent => ({ seq, at: `2026-11-01T10:00:0${seq}Z`, ...more }) as LogEvent;
const chunk = (seq: number, text: string, artifactId = "a"): LogEvent =>
  event(seq, { kind: "artifact", artifact: { artifactId, parts: [{ text }] } });
const step = (seq: number, name: string, more: object = {}): LogEvent =>
  event(seq, { kind: "step", step: name, ...more });

test("chunks of one artifact that follow each other are one row", () => {
  const found = rows([chunk(1, "ab"), chunk(2, "c"), chunk(3, "d", "b"), chunk(4, "e")]).rows;
  expect(found.map((row) => [row.chunks, row.characters, row.sinceBefore])).toEqual([
    [2, 3, 0],
    [1, 1, 2000],
    [1, 1, 1000],
  ]);
});

test("values that a run draws are one row, counted by name", () => {
  const found = rows([step(1, "$now"), step(2, "$random"), step(3, "$now"), step(4, "$model")]).rows;
  expect(found.map((row) => row.drawn)).toEqual([{ $now: 2, $random: 1 }, null]);
});

test("rows that stay as they are stay the same objects", () => {
  const events = [step(1, "read"), chunk(2, "a")];
  const before = rows(events);
  const after = rows([...events, chunk(3, "b")], before);
  expect(after.rows[0]).toBe(before.rows[0]);
  expect(after.rows[1]?.chunks).toBe(2);
  expect(rows([step(9, "other"), ...events], before).rows[1]).not.toBe(before.rows[0]);
});

test("a step is uncertain until the log tells its outcome", () => {
  const begun = (seq: number, name: string): LogEvent => event(seq, { kind: "step-begun", step: name });
  expect(uncertainSteps([begun(1, "pay"), begun(2, "pay"), step(3, "pay", { began: "2026-11-01T10:00:02Z" })])).toEqual(
    new Set([1]),
  );
});

test("a status does not say twice what its progress says", () => {
  const words = "word ".repeat(100);
  const said = (text: string): LogEvent =>
    event(1, { kind: "status", progress: [1, 2, words], message: { parts: [{ text }] } });
  expect(summary(said(words))).toBe("");
  expect(summary(said("more"))).toBe("more");
});
