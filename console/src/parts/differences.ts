// What differs between the readings of one event by several dialects. Pure. What dialects wrap around an event (JSON-RPC's
// envelope, the key that says its kind) is compared apart from the event, so that the same fact stands at the same path.

/** `only`: not every dialect has the key. `differs`: all of those that have the key do not have the same value. */
export type Mark = "only" | "differs";

export type Marks = ReadonlyMap<string, Mark>;

export const NO_MARKS: Marks = new Map();

type Keyed = Readonly<Record<string, unknown>>;

/** A value of one dialect, and the path in its frame where it stands. */
interface Place {
  readonly dialect: number;
  readonly path: string;
  readonly value: unknown;
}

/** The path of a member. Keys may hold slashes: nothing takes a path apart, so they do no harm. */
export function below(path: string, key: string): string {
  return `${path}/${key}`;
}

/** The marks of each dialect's frame by path. All of them are frames of the same event. */
export function compare(frames: readonly unknown[]): readonly Marks[] {
  const marks = frames.map(() => new Map<string, Mark>());
  if (frames.length < 2) return marks;
  const mark = (place: Place, kind: Mark): void => void marks[place.dialect]?.set(place.path, kind);

  const walk = (places: readonly Place[]): void => {
    const keyed = places.filter((place) => isKeyed(place.value));
    if (keyed.length < places.length) {
      const same = new Set(places.map((place) => JSON.stringify(place.value))).size === 1;
      if (!same) for (const place of places) mark(place, "differs");
      return;
    }
    members(keyed.map((place) => [place, place.value as Keyed]));
  };
  const members = (found: readonly (readonly [Place, Keyed])[]): void => {
    const keys = new Set(found.flatMap(([, value]) => Object.keys(value)));
    for (const key of keys) {
      const having = found
        .filter(([, value]) => Object.hasOwn(value, key))
        .map(([place, value]): Place => ({ ...place, path: below(place.path, key), value: value[key] }));
      if (having.length < found.length) for (const place of having) mark(place, "only");
      if (having.length > 1) walk(having);
    }
  };

  const bodies = frames.map((frame, dialect) => unwrap(frame, dialect));
  for (const body of bodies) {
    for (const path of body.wrappers) {
      if (!bodies.every((other) => other.wrappers.includes(path))) mark({ ...body, path }, "only");
    }
  }
  members(
    frames.map((frame, dialect): [Place, Keyed] => [
      { dialect, path: "", value: frame },
      bodies[dialect]?.path === "" || !isKeyed(frame) ? {} : without(frame, "result"),
    ]),
  );
  walk(bodies);
  return marks;
}

/** The event in a frame: what is in the JSON-RPC answer, and in an object that has one key only. */
function unwrap(frame: unknown, dialect: number): Place & { readonly wrappers: readonly string[] } {
  const wrappers: string[] = [];
  let path = "";
  let value = frame;
  if (isKeyed(value) && "jsonrpc" in value && isKeyed(value["result"])) {
    path = below(path, "result");
    wrappers.push(path);
    value = value["result"];
  }
  while (isKeyed(value)) {
    const keys = Object.keys(value);
    const key = keys[0];
    if (keys.length !== 1 || key === undefined || !isKeyed(value[key])) break;
    path = below(path, key);
    wrappers.push(path);
    value = value[key];
  }
  return { dialect, path, value, wrappers };
}

function isKeyed(value: unknown): value is Keyed {
  return typeof value === "object" && value !== null;
}

function without(value: Keyed, key: string): Keyed {
  return Object.fromEntries(Object.entries(value).filter(([name]) => name !== key));
}

/** The marks as words, for a frame that is shown as it was sent. */
export function words(marks: Marks): string {
  const named = (kind: Mark): string =>
    [...marks].flatMap(([path, found]) => (found === kind ? [path.slice(1).replaceAll("/", ".")] : [])).join(", ");
  const only = named("only");
  const differs = named("differs");
  return [only && `+ ${only}`, differs && `≠ ${differs}`].filter(Boolean).join("; ");
}
