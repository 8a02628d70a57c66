// The states of a task, as the admin API spells them, and how they look.

import type { TaskLine, UpstreamLine } from "../api/schema";

export type State = TaskLine["state"];
export type Phase = TaskLine["phase"];

export const OPEN: readonly State[] = ["submitted", "working", "input-required", "auth-required"];
export const ENDED: readonly State[] = ["completed", "failed", "canceled", "rejected"];
export const STATES: readonly State[] = [...OPEN, ...ENDED];

export type Tone = "good" | "warn" | "bad" | "busy" | "rest" | "plain";

export const TONES: Readonly<Record<State, Tone>> = {
  submitted: "plain",
  working: "busy",
  "input-required": "warn",
  "auth-required": "warn",
  completed: "good",
  failed: "bad",
  canceled: "plain",
  rejected: "bad",
};

export function isOpen(state: State): boolean {
  return OPEN.includes(state);
}

/** What tells an upstream apart from others: its agent, and its member if that has a pool. */
export function upstreamKey(upstream: UpstreamLine): string {
  return `${upstream.agent}/${upstream.member ?? ""}`;
}

/** How an upstream is. */
export function upstreamTone(upstream: UpstreamLine): Tone {
  return upstream.breaker === "closed" && !upstream.fault ? "good" : "bad";
}
