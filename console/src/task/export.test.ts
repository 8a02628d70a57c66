import { expect, test } from "vitest";

import type { RecordedTask } from "../api/schema";
import { wholeRecord } from "./export";

test("the pages of a record are one document", async () => {
  const page = (events: unknown[], next_after: number | null): RecordedTask =>
    ({ format: 1, dragoman: "0.1.0", head: { id: "t" }, seq: 3, events, next_after }) as unknown as RecordedTask;
  const asked: number[] = [];
  const text = await wholeRecord(async (after) => {
    asked.push(after);
    return after === 0 ? page([["s"], ["t"]], 2) : page([["t"]], null);
  });
  expect(asked).toEqual([0, 2]);
  expect(JSON.parse(text)).toEqual({
    format: 1,
    dragoman: "0.1.0",
    head: { id: "t" },
    seq: 3,
    events: [["s"], ["t"], ["t"]],
  });
});
