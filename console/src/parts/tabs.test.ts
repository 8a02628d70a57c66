import { expect, test } from "vitest";

import { leadsTo } from "./tabs";

test.each([
  ["ArrowRight", 0, 1],
  ["ArrowRight", 2, 0],
  ["ArrowLeft", 0, 2],
  ["Home", 2, 0],
  ["End", 0, 2],
  ["Enter", 1, null],
])("%s leads from tab %d of three to %s", (key, place, to) => expect(leadsTo(key, place, 3)).toBe(to));

test("no key leads anywhere if there is no tab", () => expect(leadsTo("End", 0, 0)).toBeNull());
