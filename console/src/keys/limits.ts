// The limits of a key: how they are named, and how a form's text becomes the change that the admin API takes.

import type { KeyLimits, LimitChanges } from "../api/schema";
import { count } from "../lib/format";

export type LimitName = keyof KeyLimits;

export const LIMITS: readonly (readonly [LimitName, string, string])[] = [
  ["max_requests_per_s", "Requests a second", "requests/s"],
  ["max_open_tasks", "Open tasks", "open tasks"],
  ["max_daily_tasks", "Tasks a day", "tasks/day"],
  ["max_daily_tokens", "Tokens a day", "tokens/day"],
];

/** The roles whose keys have no agents, operations and limits of their own. */
export const BARE: ReadonlySet<string> = new Set(["monitor", "operator"]);

export type LimitTexts = Record<LimitName, string>;

export function textsOf(limits: KeyLimits | null): LimitTexts {
  const text = (name: LimitName): string => String(limits?.[name] ?? "");
  return {
    max_requests_per_s: text("max_requests_per_s"),
    max_open_tasks: text("max_open_tasks"),
    max_daily_tasks: text("max_daily_tasks"),
    max_daily_tokens: text("max_daily_tokens"),
  };
}

/** All four limits: an empty text takes the limit away. */
export function changesOf(texts: LimitTexts): LimitChanges {
  const number = (text: string): number | null => (text === "" ? null : Number(text));
  return {
    max_requests_per_s: number(texts.max_requests_per_s),
    max_open_tasks: number(texts.max_open_tasks),
    max_daily_tasks: number(texts.max_daily_tasks),
    max_daily_tokens: number(texts.max_daily_tokens),
  };
}

export function described(limits: KeyLimits | null): string {
  const set = LIMITS.flatMap(([name, , unit]) => {
    const value = limits?.[name];
    return value === undefined || value === null ? [] : [`${count(value)} ${unit}`];
  });
  return set.length === 0 ? "as the settings say" : set.join(", ");
}
