// Numbers, times, sizes and ids as people read them.

import { nameOf } from "./visible";

const UNITS: readonly (readonly [number, string])[] = [
  [86_400, "d"],
  [3_600, "h"],
  [60, "min"],
  [1, "s"],
];

/** A length of time: `850 ms`, `4.2 s`, `3 min 20 s`, `2 d 4 h`. */
export function duration(ms: number): string {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(ms < 10_000 ? 1 : 0)} s`;
  let seconds = Math.round(ms / 1000);
  const words: string[] = [];
  for (const [size, unit] of UNITS) {
    const count = Math.floor(seconds / size);
    seconds -= count * size;
    if (count > 0) words.push(`${count} ${unit}`);
    if (words.length === 2) break;
  }
  return words.join(" ");
}

/** How long ago: `12 s ago`. */
export function ago(at: number, now: number): string {
  const past = now - at;
  if (past < 2000) return "just now";
  const seconds = Math.round(past / 1000);
  for (const [size, unit] of UNITS) {
    if (seconds >= size) return `${Math.floor(seconds / size)} ${unit} ago`;
  }
  return "just now";
}

/** How long until then: `in 2 h 4 min`; how long ago it was, once it is over. */
export function ahead(at: number, now: number): string {
  return at - now < 1000 ? ago(at, now) : `in ${duration(at - now)}`;
}

export function bytes(size: number): string {
  if (size < 1024) return `${size} B`;
  const units = ["KB", "MB", "GB", "TB"];
  let value = size / 1024;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value.toFixed(value < 10 ? 1 : 0)} ${units[unit] ?? "TB"}`;
}

const COUNT = new Intl.NumberFormat("en");

export function count(value: number): string {
  return COUNT.format(value);
}

const COMPACT = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

/** A number in a few characters: `950`, `12.3K`, `1.2M`. */
export function compact(value: number): string {
  return COMPACT.format(value);
}

/** An amount to three digits, with its currency if it has one. */
export function money(value: number, currency = ""): string {
  const amount = value >= 1000 ? compact(value) : String(Number(value.toPrecision(3)));
  return currency ? `${amount} ${currency}` : amount;
}

const CLOCK = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "long" });

/** A time in the reader's own zone, with the zone's name: `29 Nov 2026, 16:39:21 CET`. */
export function clock(at: string): string {
  return CLOCK.format(new Date(at));
}

/** The end of an id: ids begin with the time, so that those of one minute begin alike. The whole is in the title. */
export function short(id: string): string {
  return nameOf(id.length <= 12 ? id : `…${id.slice(-10)}`);
}

export function plural(value: number, one: string, many = `${one}s`): string {
  return `${count(value)} ${value === 1 ? one : many}`;
}
