// The columns of the list of tasks that a reader has chosen. They are kept in the browser.

export const COLUMNS = [
  ["agent", "Agent", true],
  ["principal", "Principal", true],
  ["context", "Context", true],
  ["dialect", "Dialect", false],
  ["duration", "Duration", true],
  ["made", "Made", false],
  ["changed", "Changed", false],
  ["key", "Key", false],
  ["parent", "Delegated by", false],
  ["holder", "Run by", false],
] as const;

export type Column = (typeof COLUMNS)[number][0];

const PLACE = "dragoman.columns";

/** Those that a text names, in the order of all; the usual ones if it names none that there are. */
export function readColumns(text: string | null): readonly Column[] {
  const names = (text ?? "").split(",");
  const found = COLUMNS.filter(([name]) => names.includes(name));
  if (found.length === 0 && text !== "none") return COLUMNS.filter(([, , usual]) => usual).map(([name]) => name);
  return found.map(([name]) => name);
}

export function keptColumns(): readonly Column[] {
  try {
    return readColumns(localStorage.getItem(PLACE));
  } catch {
    return readColumns(null);
  }
}

export function keepColumns(columns: readonly Column[]): void {
  try {
    localStorage.setItem(PLACE, columns.join(",") || "none");
  } catch {
    // A browser that keeps nothing shows the usual ones the next time.
  }
}

interface Times {
  readonly created_at: string;
  readonly status_at: string;
}

/** How long a task took, or has taken until now. */
export function tookMs(task: Times, open: boolean, now: number): number {
  return Math.max(0, (open ? now : Date.parse(task.status_at)) - Date.parse(task.created_at));
}
