import { expect, test } from "vitest";

import { foremost, greatest, pieces, roundTop, stack, tickPlaces, timeLabel, type Series } from "./chart";

const series = (values: (number | null)[]): Series => ({ name: "a", colour: "good", values });

test("the top of a scale is a round number", () => {
  expect([0, 0.03, 1, 3, 7, 99, 120, 5000].map((most) => roundTop(most))).toEqual([1, 0.05, 1, 5, 10, 100, 200, 5000]);
  expect(roundTop(0.2, true)).toBe(1);
});

test("each series stands on those before it", () => {
  const found = [series([1, 2, null]), series([3, null, 4])];
  expect(stack(found)).toEqual([
    [1, 2, 0],
    [4, 2, 4],
  ]);
  expect([greatest(found, true), greatest(found, false), greatest([], true)]).toEqual([4, 4, 0]);
});

test("a line has a gap where nobody knows a value", () => {
  const place = (x: number, y: number) => ({ x, y });
  expect(pieces([1, 2, null, null, 5], place)).toEqual([
    [
      { x: 0, y: 1 },
      { x: 1, y: 2 },
    ],
    [{ x: 4, y: 5 }],
  ]);
});

test("labels are at equal distances", () => {
  expect(tickPlaces(60, 5)).toEqual([0, 12, 24, 36, 48]);
  expect(tickPlaces(30, 4)).toEqual([0, 8, 16, 24]);
  expect(tickPlaces(2, 9)).toEqual([0, 1]);
});

test("a day is one of UTC", () => {
  expect(timeLabel(Date.UTC(2026, 10, 29), 86_400_000)).toBe("29 Nov");
  expect(timeLabel(Date.UTC(2026, 10, 29), 60_000)).toMatch(/^\d\d:\d\d$/);
});

test("beyond some series the others are one", () => {
  const all = new Map([
    ["low", [1, 0]],
    ["high", [5, 5]],
    ["lower", [0, 1]],
  ]);
  expect(foremost(all, 2)).toEqual([
    { name: "high", colour: "busy", values: [5, 5] },
    { name: "2 others", colour: "quiet", values: [1, 1] },
  ]);
  expect(foremost(all, 3).map((each) => each.name)).toEqual(["high", "low", "lower"]);
});
