// What a chart computes: the top of its scale, heights that stand on each other, pieces of a line, and its labels.

/** A colour of the design. */
export type Colour = "good" | "warn" | "bad" | "busy" | "rest" | "quiet";

export const COLOURS: readonly Colour[] = ["busy", "good", "rest", "warn", "bad", "quiet"];

/** A value for each time; null where nobody knows one. */
export interface Series {
  readonly name: string;
  readonly colour: Colour;
  readonly values: readonly (number | null)[];
}

export interface Point {
  readonly x: number;
  readonly y: number;
}

/** A round number that is at least `most`: 1, 2 or 5 with zeros. A `whole` one is at least 1. */
export function roundTop(most: number, whole = false): number {
  if (most <= 0) return 1;
  const size = 10 ** Math.floor(Math.log10(most));
  const found = [1, 2, 5, 10].map((each) => each * size).find((each) => each >= most * 0.9999) ?? most;
  return whole ? Math.max(1, found) : found;
}

/** The heights of each series on top of those before it. */
export function stack(series: readonly Series[]): readonly (readonly number[])[] {
  const sums: number[] = [];
  return series.map(({ values }) => values.map((value, at) => (sums[at] = (sums[at] ?? 0) + (value ?? 0))));
}

/** The greatest value, of all series together if they are `stacked`. */
export function greatest(series: readonly Series[], stacked: boolean): number {
  const heights = stacked ? (stack(series).at(-1) ?? []) : series.flatMap(({ values }) => values);
  return heights.reduce<number>((most, value) => Math.max(most, value ?? 0), 0);
}

/** The pieces of a line, which has a gap where a value is null. */
export function pieces(values: readonly (number | null)[], place: (at: number, value: number) => Point): Point[][] {
  const found: Point[][] = [];
  let open = false;
  values.forEach((value, at) => {
    if (value === null) open = false;
    else {
      if (!open) found.push([]);
      open = true;
      found.at(-1)?.push(place(at, value));
    }
  });
  return found;
}

/** About `most` of `count` places, at equal distances, none of them at the very end. */
export function tickPlaces(count: number, most: number): number[] {
  const step = Math.max(1, Math.ceil(count / Math.max(1, most)));
  return Array.from({ length: Math.ceil(count / step) }, (_, at) => at * step).filter((at) => at <= count - step / 2);
}

const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const DAY = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", timeZone: "UTC" });
const DAY_MS = 86_400_000;

/** A time as a chart with steps of that length names it. Days are those of UTC, other times those of the reader. */
export function timeLabel(ms: number, stepMs: number): string {
  return (stepMs >= DAY_MS ? DAY : CLOCK).format(ms);
}

/** The series with the greatest sums, and one for all others. */
export function foremost(all: ReadonlyMap<string, readonly number[]>, most: number): Series[] {
  const sum = (values: readonly number[]): number => values.reduce((one, other) => one + other, 0);
  const sorted = [...all].sort(([, one], [, other]) => sum(other) - sum(one));
  const rest = sorted.length > most ? sorted.splice(most - 1) : [];
  const found = sorted.map(([name, values], at) => ({ name, colour: COLOURS[at % COLOURS.length] ?? "quiet", values }));
  if (rest.length === 0) return found;
  const values = (rest[0]?.[1] ?? []).map((_, at) => rest.reduce((total, [, each]) => total + (each[at] ?? 0), 0));
  return [...found, { name: `${rest.length} others`, colour: "quiet", values }];
}
