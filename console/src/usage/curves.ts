// Usage by day as curves, one for each team, agent, model or member of a pool.

import type { UsageLine } from "../api/schema";
import { nameOf } from "../lib/visible";

export const DAY_MS = 86_400_000;
const MOST_DAYS = 800;

export type CurveName = "team" | "agent" | "model" | "upstream";
export type Measure = "cost" | "tokens" | "tasks" | "messages" | "hours";

export const MEASURES: readonly (readonly [Measure, string])[] = [
  ["cost", "Cost"],
  ["tokens", "Tokens"],
  ["tasks", "Tasks"],
  ["messages", "Messages"],
  ["hours", "Hours"],
];

/** The days from one to another, both included: `2026-11-29`. */
export function daysBetween(since: string, until: string): string[] {
  const first = Date.parse(since);
  const length = Math.min(MOST_DAYS, Math.round((Date.parse(until) - first) / DAY_MS) + 1);
  return Array.from({ length: Math.max(0, length) }, (_, at) =>
    new Date(first + at * DAY_MS).toISOString().slice(0, 10),
  );
}

function amount(line: UsageLine, measure: Measure): number {
  switch (measure) {
    case "cost":
      return Number(line.cost ?? 0);
    case "tokens":
      return line.total_tokens ?? 0;
    case "tasks":
      return line.tasks ?? 0;
    case "messages":
      return line.messages ?? 0;
    case "hours":
      return (line.duration_s ?? 0) / 3600;
  }
}

/** A value for each day by name, 0 on days on which nothing was used. Names without any are left out. */
export function curvesOf(
  lines: readonly UsageLine[],
  days: readonly string[],
  name: CurveName,
  measure: Measure,
): Map<string, number[]> {
  const places = new Map(days.map((day, at) => [day, at]));
  const found = new Map<string, number[]>();
  for (const line of lines) {
    const at = places.get(line.day ?? "");
    const value = amount(line, measure);
    if (at === undefined || value === 0) continue;
    const key = nameOf(line[name] ?? "") || `no ${name}`;
    const values = found.get(key) ?? days.map(() => 0);
    values[at] = (values[at] ?? 0) + value;
    found.set(key, values);
  }
  return found;
}
