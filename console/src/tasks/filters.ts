// The filters of the list of tasks: as the address has them, and as the admin API takes them.

/** The names in the address, by those of the API. */
const NAMES = {
  state: "state",
  sleeping: "sleeping",
  agent: "agent",
  principal: "principal",
  key: "key",
  context: "context",
  dialect: "dialect",
  text: "text",
  metadata: "metadata",
  longer_than_s: "longer",
  shorter_than_s: "shorter",
  newer_than_s: "newer",
  older_than_s: "older",
} as const;

type Name = keyof typeof NAMES;

/** Only a search finds these, which goes in the order of creation. */
const SEARCHED: readonly Name[] = ["text", "key", "dialect", "sleeping", "metadata", "longer_than_s", "shorter_than_s"];

const SECONDS: readonly Name[] = ["longer_than_s", "shorter_than_s", "newer_than_s", "older_than_s"];

export type Filters = Readonly<Partial<Record<Name, string>>>;

/** The filters in an address that are set. */
export function readFilters(query: URLSearchParams): Filters {
  const found: Partial<Record<Name, string>> = {};
  for (const [name, field] of Object.entries(NAMES)) {
    const value = query.get(field);
    if (value) found[name as Name] = value;
  }
  return found;
}

export function needsSearch(filters: Filters): boolean {
  return SEARCHED.some((name) => filters[name] !== undefined);
}

/** The same as the body of a request, with its numbers. Without any it is every task. */
export function filterBody(filters: Filters): Record<string, string | number | boolean> {
  const found = Object.entries(filters).map(([name, value]) => [
    name,
    name === "sleeping" ? value === "true" : SECONDS.includes(name as Name) ? Number(value) : value,
  ]);
  return found.length === 0 ? { older_than_s: 0 } : Object.fromEntries(found);
}
