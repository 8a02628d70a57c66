import { expect, test } from "vitest";

import { fromSegment, toSegment } from "./ids";

test.each(["0192-ab", "..", ".", "...", "a/b", "../..", "~", "~..", "%2E", "a b?c#d", "日本", ""])(
  "%j is the same after a browser has read the address",
  (id) => {
    const path = new URL(`/console/tasks/${toSegment(id)}`, "http://h").pathname;
    expect(fromSegment(path.slice("/console/tasks/".length))).toBe(id);
    expect(path.split("/")).toHaveLength(4);
  },
);

test("a segment that is no UTF-8 is taken as it is", () => expect(fromSegment("%zz")).toBe("%zz"));
