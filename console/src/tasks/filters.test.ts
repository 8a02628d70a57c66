import { expect, test } from "vitest";

import { filterBody, needsSearch, readFilters } from "./filters";

test("the address tells the filters under short names", () => {
  const filters = readFilters(new URLSearchParams("state=failed&newer=3600&longer=60&cursor=x&agent="));
  expect(filters).toEqual({ state: "failed", newer_than_s: "3600", longer_than_s: "60" });
  expect(filterBody(filters)).toEqual({ state: "failed", newer_than_s: 3600, longer_than_s: 60 });
  expect(filterBody(readFilters(new URLSearchParams("sleeping=true")))).toEqual({ sleeping: true });
});

test("without filters every task is meant", () => {
  expect(filterBody({})).toEqual({ older_than_s: 0 });
});

test("what no index answers is searched", () => {
  expect(needsSearch({ state: "failed", newer_than_s: "60" })).toBe(false);
  expect(needsSearch({ metadata: "ticket=7" })).toBe(true);
  expect(needsSearch({ shorter_than_s: "1" })).toBe(true);
});
