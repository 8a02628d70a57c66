import { expect, test } from "vitest";

import { failedShare, lists, sums } from "./figures";

const points = [
  { completed: 97, failed: 1, p50_s: 0.1, p95_s: 2.5, input_tokens: 100, output_tokens: 5, cost: "0.25" },
  { completed: 0, canceled: 1, rejected: 1, p95_s: 1 },
];

test("points add up; what nobody reported stays unknown", () => {
  expect(sums(points)).toEqual({ ended: 100, failed: 2, slowest: 2.5, tokens: { in: 100, out: 5 }, cost: 0.25 });
  expect(sums([{}])).toEqual({ ended: 0, failed: 0, slowest: null, tokens: null, cost: 0 });
});

test("errors are told as a number and as a share", () => {
  expect(failedShare(sums(points))).toBe("2, 2.0 % of all");
  expect(failedShare(sums([{ completed: 5 }]))).toBe("none");
});

test("a step without a value is a gap in its line", () => {
  expect(lists(points).cost[0]?.values).toEqual([0.25, null]);
  expect(lists(points).durations.map((each) => each.values)).toEqual([
    [0.1, null],
    [2.5, 1],
  ]);
});
