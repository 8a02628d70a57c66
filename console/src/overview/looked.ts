// When this reader looked at the overview last. It is kept in the browser: another one has looked at another time.

/** Since when things are told as new, and when the reader was here last. */
export interface Look {
  readonly since: number;
  readonly seen: number;
}

/** Who comes back within this time was never away. */
export const AWAY_MS = 10 * 60_000;

const PLACE = "dragoman.looked";

/** The look that begins now. Without an earlier one nothing is new. */
export function beginLook(earlier: Look | null, now: number): Look {
  if (earlier === null) return { since: now, seen: now };
  return { since: now - earlier.seen >= AWAY_MS ? earlier.seen : earlier.since, seen: now };
}

export function readLook(text: string | null): Look | null {
  try {
    const found = JSON.parse(text ?? "null") as Partial<Look> | null;
    return typeof found?.since === "number" && typeof found.seen === "number"
      ? { since: found.since, seen: found.seen }
      : null;
  } catch {
    return null;
  }
}

/** Whether the reader was away for long enough to be told what happened. */
export function wasAway(look: Look): boolean {
  return look.seen - look.since >= AWAY_MS;
}

/** Begin a look, and keep in mind that the reader is here. A browser that keeps nothing shows nothing as new. */
export function look(now: number): Look {
  try {
    const begun = beginLook(readLook(localStorage.getItem(PLACE)), now);
    localStorage.setItem(PLACE, JSON.stringify(begun));
    return begun;
  } catch {
    return { since: now, seen: now };
  }
}

const EVERY_MS = 60_000;

/** Note now and then, and as the reader leaves, that the reader is still here. Returns a function that ends it. */
export function keepLooking(begun: Look): () => void {
  const note = (): void => {
    try {
      localStorage.setItem(PLACE, JSON.stringify({ since: begun.since, seen: Date.now() }));
    } catch {
      // A browser that keeps nothing.
    }
  };
  const timer = setInterval(() => document.hidden || note(), EVERY_MS);
  document.addEventListener("visibilitychange", note);
  return () => {
    note();
    clearInterval(timer);
    document.removeEventListener("visibilitychange", note);
  };
}
