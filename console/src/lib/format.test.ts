import { expect, test } from "vitest";

import { ago, ahead, bytes, compact, duration, money, plural, short } from "./format";

test.each([
  [0, "0 ms"],
  [849.6, "850 ms"],
  [4_200, "4.2 s"],
  [59_000, "59 s"],
  [60_000, "1 min"],
  [200_000, "3 min 20 s"],
  [3_600_000, "1 h"],
  [187_200_000, "2 d 4 h"],
])("%d ms last %s", (ms, text) => expect(duration(ms)).toBe(text));

test.each([
  [1_999, "just now"],
  [12_000, "12 s ago"],
  [125_000, "2 min ago"],
  [172_800_000, "2 d ago"],
])("%d ms before now is %s", (past, text) => expect(ago(1e12 - past, 1e12)).toBe(text));

test("a time that is over is no longer ahead", () => {
  expect(ahead(1e12 + 7_440_000, 1e12)).toBe("in 2 h 4 min");
  expect(ahead(1e12 - 12_000, 1e12)).toBe("12 s ago");
});

test.each([
  [1023, "1023 B"],
  [1024, "1.0 KB"],
  [15 * 1024, "15 KB"],
  [3 * 1024 ** 5, "3072 TB"],
])("%d bytes are %s", (size, text) => expect(bytes(size)).toBe(text));

test("a long id is known by its end, and hides nothing", () => {
  expect(short("0192-abcdef01234567")).toBe("…ef01234567");
  expect(short("a\u202eb")).toBe("a‹U+202E›b");
});

test("one thing is singular", () => {
  expect(plural(1, "task")).toBe("1 task");
  expect(plural(1200, "reply", "replies")).toBe("1,200 replies");
});

test("large numbers take a few characters, and money three digits", () => {
  expect([950, 12_345, 1_234_567].map(compact)).toEqual(["950", "12.3K", "1.2M"]);
  expect([money(0.012345), money(4.5, "EUR"), money(12_345, "EUR")]).toEqual(["0.0123", "4.5 EUR", "12.3K EUR"]);
});
