// The figures of a span as charts and sums show them.

import type { SeriesPoint } from "../api/schema";
import type { Series } from "../parts/chart";

export const SPANS = ["hour", "day", "month"] as const;
export type Span = (typeof SPANS)[number];

export function isSpan(text: string): text is Span {
  return (SPANS as readonly string[]).includes(text);
}

/** The sums of points: the longest of the times within which 95 of 100 tasks ended, and tokens if any were reported. */
export interface Sums {
  readonly ended: number;
  readonly failed: number;
  readonly slowest: number | null;
  readonly tokens: { readonly in: number; readonly out: number } | null;
  readonly cost: number;
}

type Figures = Omit<SeriesPoint, "at">;

export function sums(points: readonly Figures[]): Sums {
  const add = (value: (point: Figures) => number | null | undefined): number =>
    points.reduce((sum, point) => sum + (value(point) ?? 0), 0);
  const failed = add((point) => point.failed) + add((point) => point.rejected);
  const times = points.flatMap((point) => point.p95_s ?? []);
  const reported = points.some((point) => point.input_tokens != null);
  return {
    ended: failed + add((point) => point.completed) + add((point) => point.canceled),
    failed,
    slowest: times.length === 0 ? null : Math.max(...times),
    tokens: reported ? { in: add((point) => point.input_tokens), out: add((point) => point.output_tokens) } : null,
    cost: add((point) => Number(point.cost ?? 0)),
  };
}

/** How many of the tasks that ended failed: `3, 1.5 % of all`. */
export function failedShare({ ended, failed }: Sums): string {
  if (failed === 0) return "none";
  const share = (100 * failed) / ended;
  return `${failed.toLocaleString("en")}, ${share < 10 ? share.toFixed(1) : share.toFixed(0)} % of all`;
}

/** What each chart draws. */
export function lists(points: readonly Figures[]): Readonly<Record<Chart, readonly Series[]>> {
  const of = (
    name: string,
    colour: Series["colour"],
    value: (point: Figures) => number | null | undefined,
  ): Series => ({ name, colour, values: points.map((point) => value(point) ?? null) });
  const failed = of("failed", "bad", (point) => point.failed);
  const rejected = of("rejected", "warn", (point) => point.rejected);
  return {
    ended: [
      of("completed", "good", (point) => point.completed),
      of("canceled", "quiet", (point) => point.canceled),
      rejected,
      failed,
    ],
    errors: [failed, rejected],
    durations: [of("median", "busy", (point) => point.p50_s), of("95 of 100", "rest", (point) => point.p95_s)],
    tokens: [of("in", "busy", (point) => point.input_tokens), of("out", "rest", (point) => point.output_tokens)],
    cost: [of("cost", "good", (point) => (point.cost == null ? null : Number(point.cost)))],
  };
}

export type Chart = "ended" | "errors" | "durations" | "tokens" | "cost";
