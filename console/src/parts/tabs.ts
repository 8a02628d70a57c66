// The keys of a list of tabs (WAI-ARIA, "Tabs Pattern"): the tab that a key leads to is chosen at once.

/** The place that a key leads to from a `place` among `count` tabs; null for any other key. */
export function leadsTo(key: string, place: number, count: number): number | null {
  if (count === 0) return null;
  switch (key) {
    case "ArrowRight":
      return (place + 1) % count;
    case "ArrowLeft":
      return (place - 1 + count) % count;
    case "Home":
      return 0;
    case "End":
      return count - 1;
    default:
      return null;
  }
}
