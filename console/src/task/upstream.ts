// What there is to say of a task at another server, beside its state and its span.

import type { TreeTask } from "../api/schema";
import { clock } from "../lib/format";
import type { State } from "../lib/states";

/** A sentence about a task at another server. `warn`: it is out of step with ours. */
export interface Remark {
  readonly text: string;
  readonly warn: boolean;
}

const CANCELS = {
  accepted: "The other server accepted our cancel.",
  refused: "The other server refused our cancel.",
  unanswered: "The other server did not answer our cancel.",
} as const;

/** `ours` is the state of the task that was sent on; null if it is not among those that are shown. */
export function remarks(task: TreeTask, ours: State | null): readonly Remark[] {
  const upstream = task.upstream;
  if (!upstream) return [];
  const said: Remark[] = [];
  const add = (text: string, warn = false): void => void said.push({ text, warn });
  if (upstream.differs && ours !== null) {
    add(`Ours is ${ours}; the other server last said ${task.state}.`, true);
  }
  if (!upstream.known) add("The other server's own state was not noted: this is ours.");
  if (upstream.cancel) add(CANCELS[upstream.cancel], upstream.cancel !== "accepted");
  if (upstream.lost_at) add(`The connection was lost at ${clock(upstream.lost_at)}, and nothing has come since.`, true);
  else if (upstream.followed_until)
    add(`It is not followed since our task ended, at ${clock(upstream.followed_until)}.`);
  if (upstream.last_status_at) {
    add(
      `Its first and last status, by its own clock: ${span(upstream.first_status_at ?? "", upstream.last_status_at)}.`,
    );
  } else if (upstream.known) add("It sends no times.");
  if (task.member) add(`Member ${task.member} of the pool has it.`);
  if (task.history_at) add(`What was said before in the conversation is at ${task.history_at}.`, true);
  if (upstream.dragoman) add("It is a Dragoman, too: what it delegated is in its own console.");
  return said;
}

/** The members of a pool that have not carried out a task, a sentence each. */
export function attempts(task: TreeTask): readonly string[] {
  return (task.attempts ?? []).map(
    (each) => `${each.member} did not, at ${clock(each.at)}: ${each.why || each.reason}`,
  );
}

/** A time, or two; the day of the second is left out if it is that of the first. */
function span(first: string, last: string): string {
  if (first === "" || first === last) return clock(last);
  const [day, time] = clock(last).split(", ");
  const began = clock(first);
  return `${began} to ${began.startsWith(`${day},`) ? time : clock(last)}`;
}

/** The name of a server, without the path; the whole URL if it has no host. */
export function host(url: string): string {
  return /^[a-z]+:\/\/([^/]+)/.exec(url)?.[1] ?? url;
}
