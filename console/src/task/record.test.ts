import { expect, test } from "vitest";

import type { LogEvent } from "../api/schema";
import { fold } from "./record";

const chunk = (seq: number, text: string): LogEvent =>
  ({ seq, at: null, kind: "artifact", append: seq > 1, artifact: { artifactId: "a", parts: [{ text }] } }) as LogEvent;

test("a text that grows too long keeps its end, and how it began", () => {
  const [shown] = fold([chunk(1, "begins "), chunk(2, "x".repeat(399_999)), chunk(3, " ends")]).artifacts;
  expect(shown?.beginning.startsWith("begins xxx")).toBe(true);
  expect(shown?.beginning.length).toBe(4000);
  expect(shown?.parts[0]?.text?.endsWith(" ends")).toBe(true);
  expect((shown?.parts[0]?.text?.length ?? 0) + (shown?.dropped ?? 0)).toBe(400_011);
});

test("a text of which the server leaves out characters begins as it says", () => {
  const event = { ...chunk(1, "the end"), dropped: 10, beginning: "begins" };
  expect(fold([event]).artifacts[0]).toMatchObject({ beginning: "begins", dropped: 10 });
});
