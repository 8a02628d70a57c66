import { expect, test } from "vitest";

import { curvesOf, daysBetween } from "./curves";

test("days are counted over the end of a month", () => {
  expect(daysBetween("2026-11-29", "2026-12-01")).toEqual(["2026-11-29", "2026-11-30", "2026-12-01"]);
  expect(daysBetween("2026-12-01", "2026-11-01")).toEqual([]);
});

test("a curve has each day, and those of one name are one", () => {
  const days = ["2026-11-29", "2026-11-30"];
  const lines = [
    { agent: "echo", day: "2026-11-30", cost: "0.5", total_tokens: 7 },
    { agent: "echo", day: "2026-11-30", cost: "0.25" },
    { agent: "sum", day: "2026-11-29" },
    { agent: "echo", day: "2026-10-01", cost: "9" },
    { team: "", day: "2026-11-29", tasks: 3 },
  ];
  expect([...curvesOf(lines, days, "agent", "cost")]).toEqual([["echo", [0, 0.75]]]);
  expect([...curvesOf(lines, days, "agent", "tokens")]).toEqual([["echo", [0, 7]]]);
  expect([...curvesOf(lines, days, "team", "tasks")]).toEqual([["no team", [3, 0]]]);
});
