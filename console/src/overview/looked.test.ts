import { expect, test } from "vitest";

import { AWAY_MS, beginLook, readLook, wasAway } from "./looked";

test("at the first look nothing is new", () => {
  expect(beginLook(null, 5000)).toEqual({ since: 5000, seen: 5000 });
  expect(wasAway({ since: 5000, seen: 6000 })).toBe(false);
});

test("new is what happened while the reader was away", () => {
  const away = { since: 10, seen: 1000 };
  expect(beginLook(away, 1000 + AWAY_MS)).toEqual({ since: 1000, seen: 1000 + AWAY_MS });
  expect(wasAway({ since: 1000, seen: 1000 + AWAY_MS })).toBe(true);
});

test("a reload does not make the news old", () => {
  const here = { since: 10, seen: 1000 };
  expect(beginLook(here, 2000)).toEqual({ since: 10, seen: 2000 });
});

test("what somebody else has written there counts for nothing", () => {
  for (const text of [null, "", "{", "7", '{"since": "x", "seen": 1}']) expect(readLook(text)).toBeNull();
  expect(readLook('{"since": 1, "seen": 2}')).toEqual({ since: 1, seen: 2 });
});
