import { expect, test } from "vitest";

import { readColumns, tookMs } from "./columns";

const USUAL = ["agent", "principal", "context", "duration"];

test("the usual columns are shown until others are chosen", () => {
  for (const text of [null, "", "colour"]) expect(readColumns(text)).toEqual(USUAL);
  expect(readColumns("key,agent,colour")).toEqual(["agent", "key"]);
  expect(readColumns("none")).toEqual([]);
});

test("a task that has ended took until its end, an open one until now", () => {
  const task = { created_at: "2026-11-29T10:00:00.000Z", status_at: "2026-11-29T10:00:05.000Z" };
  const now = Date.parse("2026-11-29T10:01:00.000Z");
  expect([tookMs(task, false, now), tookMs(task, true, now)]).toEqual([5000, 60_000]);
});
