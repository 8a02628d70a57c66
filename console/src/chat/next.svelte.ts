// The way from an example on another page to the conversation in which it is said.

import type { Example } from "../agents/card";
import { router } from "../lib/router.svelte";

/** A message that another page has chosen: it is sent when the conversation with the agent is shown. */
export const next = $state<{ agent: string; text: string; skill: string }>({ agent: "", text: "", skill: "" });

/** Show the conversation with an agent, and say this there. No address can do that: it could come from anybody. */
export function sayNext(agent: string, { text, skill }: Example): void {
  Object.assign(next, { agent, text, skill });
  router.go(`/try?agent=${encodeURIComponent(agent)}`);
}
