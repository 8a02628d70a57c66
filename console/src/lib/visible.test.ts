import { expect, test } from "vitest";

import { jsonOf, jsonTextOf, lineOf, nameOf, reportOf, textOf, titleOf } from "./visible";

test("characters that hide, steer or turn are shown as their codes", () => {
  expect(nameOf("in\u202evoice\u0007")).toBe("in‹U+202E›voice‹U+0007›");
  expect(lineOf("a\nb\u2028c")).toBe("a‹U+000A›b‹U+2028›c");
});

test("joiners stay, for emoji and Persian are written with them", () => {
  expect(nameOf("👩\u200d💻 می\u200cخواهم")).toBe("👩\u200d💻 می\u200cخواهم");
});

test("a text keeps its lines, a report has one", () => {
  expect(textOf("a\r\n\tb\u0000")).toBe("a\n\tb‹U+0000›");
  expect(reportOf("first\n\nsecond")).toBe("first second");
});

test("a long name says how long it is", () => {
  expect(nameOf("x".repeat(201))).toBe(`${"x".repeat(200)}… (201 characters)`);
});

test("a title has no marks of Markdown", () => {
  expect(titleOf("# Weather | city | °C | |---|---| | Oslo | 4 | | Rome | -21 | It is **sunny** in `Rome`.")).toBe(
    "Weather city °C Oslo 4 Rome -21 It is sunny in Rome.",
  );
  expect(titleOf("> quoted")).toBe("quoted");
  expect(titleOf("**__init__** of a\u202e")).toBe("__init__ of a‹U+202E›");
});

test("a title that only looks a little like Markdown stays", () => {
  for (const title of ["C# or F#?", "a | b", "2 ** 3 ** 4", "#5 is -3", "snake_case_name", ""])
    expect(titleOf(title)).toBe(title);
});

test("JSON is escaped so that it reads back as the same value", () => {
  const value = { "a\u202e": "\u2066b\n" };
  expect(jsonOf(value)).toBe('{"a\\u202e":"\\u2066b\\n"}');
  expect(JSON.parse(jsonOf(value))).toEqual(value);
  expect(jsonTextOf('{\n"a\u202e": 1}')).toBe('{\n"a\\u202e": 1}');
});
