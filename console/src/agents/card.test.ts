import { expect, test } from "vitest";

import { cardOf, examplesOf } from "./card";

function cardWith(...skills: readonly (readonly string[])[]) {
  return cardOf({ skills: skills.map((examples, place) => ({ id: `s${place}`, examples })) });
}

test("each skill gives one example before any gives two", () => {
  const card = cardWith(["a1", "a2", "a3"], ["", " \n"], ["c1", "c2"]);
  expect(examplesOf(card, 4).map((each) => `${each.skill}:${each.text}`)).toEqual(["s0:a1", "s2:c1", "s0:a2", "s2:c2"]);
  expect(examplesOf(card, 1)).toHaveLength(1);
  expect(examplesOf(card, 9)).toHaveLength(5);
});

test("a card of anybody may lack everything", () => {
  expect(examplesOf(undefined, 3)).toEqual([]);
  expect(examplesOf(cardOf(null), 3)).toEqual([]);
  expect(cardOf({ skills: [{ id: "x" }, { id: "x" }, 7], capabilities: [] }).skills).toHaveLength(1);
});
