// A task as one JSON document: what `dragoman admin tasks record` prints, and a replay reads.

import type { RecordedTask } from "../api/schema";

export type ReadPage = (after: number) => Promise<RecordedTask>;

/** All pages as one document. */
export async function wholeRecord(read: ReadPage): Promise<string> {
  const first = await read(0);
  const events = [...first.events];
  let next = first.next_after;
  while (next != null) {
    const page = await read(next);
    events.push(...page.events);
    next = page.next_after;
  }
  const { format, dragoman, head, seq } = first;
  return JSON.stringify({ format, dragoman, head, seq, events }, null, 1);
}
