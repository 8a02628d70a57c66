import { expect, test } from "vitest";

import { addFrame, beginTurn, isAtWork, readTurn, waits } from "./turn";

const SENT = { message: { messageId: "m", role: "ROLE_USER", parts: [{ text: "hi" }] } } as const;
const PLACE = { taskId: "t", contextId: "c" };

function says(text: string): object {
  return { messageId: text, role: "ROLE_AGENT", parts: [{ text }] };
}

function status(state: string, message?: object, metadata?: object): string {
  const said = { state: `TASK_STATE_${state}`, ...(message ? { message } : {}) };
  return JSON.stringify({ statusUpdate: { ...PLACE, status: said, ...(metadata ? { metadata } : {}) } });
}

function chunk(text: string, append: boolean): string {
  return JSON.stringify({ artifactUpdate: { ...PLACE, artifact: { artifactId: "a", parts: [{ text }] }, append } });
}

const BEGUN = JSON.stringify({ task: { id: "t", contextId: "c", status: { state: "TASK_STATE_SUBMITTED" } } });

test("what an agent says of its work is apart from what it says to the caller", () => {
  const frames = [
    BEGUN,
    status("WORKING", says("step"), { "urn:dragoman:progress:v1": { current: 1, total: 4 } }),
    status("WORKING", says("no count")),
    status("INPUT_REQUIRED", says("Which?")),
    status("INPUT_REQUIRED", says("Which?")),
  ];
  const turn = readTurn(SENT, frames, null);
  expect(turn.reports).toEqual([
    { text: "step", share: 0.25 },
    { text: "no count", share: null },
  ]);
  expect(turn.messages.map((each) => each.messageId)).toEqual(["Which?"]);
  expect([turn.taskId, turn.contextId, waits(turn), isAtWork(turn)]).toEqual(["t", "c", true, false]);
});

test("chunks of an artifact grow, and a new reading of the task replaces them", () => {
  const frames = [BEGUN, chunk("one ", false), chunk("two", true)];
  const turn = readTurn(SENT, frames, null);
  expect(turn.artifacts).toEqual([{ id: "a", name: "a", parts: [{ text: "one two" }] }]);
  expect(isAtWork(turn)).toBe(true);
  const again = addFrame(turn, JSON.stringify({ task: { ...JSON.parse(BEGUN).task, artifacts: [] } }));
  expect(again.artifacts).toEqual([]);
});

test("an answer without a task is a message", () => {
  const turn = addFrame(beginTurn(SENT), JSON.stringify({ message: says("hello") }));
  expect([turn.messages.length, turn.taskId, waits(turn), isAtWork(turn)]).toEqual([1, null, false, false]);
});

test.each([{ current: 3, total: 0 }, { current: "1", total: 2 }, null, 7])("%j is no share", (progress) => {
  const turn = addFrame(beginTurn(SENT), status("WORKING", says("x"), { "urn:dragoman:progress:v1": progress }));
  expect(turn.reports.at(-1)?.share).toBeNull();
});
