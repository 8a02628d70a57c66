// Runs a peer's scenarios side by side and prints one JSON line for each.

import { isDeepStrictEqual } from "node:util";

const TIMEOUT_MS = 120_000;
const CONCURRENT = 6;

/** The error and the lines of the peer script that led to it, short enough for a test report. */
function explain(error) {
  if (!(error instanceof Error)) return String(error);
  const trail = (error.stack ?? "")
    .split("\n")
    .filter((line) => /\/js\/[a-z0-9]+\.mjs:/.test(line))
    .map((line) => line.trim().replace(/\(?file:\S*\//, "("));
  const cause = error.cause ? ` (cause: ${error.cause})` : "";
  return `${error.name} ${error.constructor.name}: ${error.message}${cause}`.slice(0, 2_000) + ` | ${trail.join(" > ")}`;
}

async function outcome(scenario) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`still running after ${TIMEOUT_MS / 1_000} s`)), TIMEOUT_MS);
  });
  try {
    await Promise.race([scenario(), late]);
    return "";
  } catch (error) {
    return explain(error);
  } finally {
    clearTimeout(timer);
  }
}

/** Runs [name, function] pairs, at most CONCURRENT at a time; ends the process with 1 if any failed. */
export async function run(scenarios) {
  const words = process.argv.slice(3);
  const waiting = scenarios.filter(([name]) => !words.length || words.some((word) => name.includes(word)));
  let failures = waiting.length ? 0 : 1;
  const worker = async () => {
    for (let next = waiting.shift(); next; next = waiting.shift()) {
      const [name, scenario] = next;
      const detail = await outcome(scenario);
      failures += detail ? 1 : 0;
      process.stdout.write(`${JSON.stringify({ scenario: name, ok: !detail, detail })}\n`);
    }
  };
  await Promise.all(Array.from({ length: CONCURRENT }, worker));
  process.exit(failures ? 1 : 0); // not when nothing is left to do: idle channels of gRPC take a minute more to close
}

/** The server's root, from the command line. */
export function baseUrl() {
  return process.argv[2].replace(/\/$/, "");
}

export function expect(fact, message) {
  if (!fact) throw new Error(message);
}

export function same(got, wanted, what) {
  expect(isDeepStrictEqual(got, wanted), `${what}: ${JSON.stringify(got)}, expected ${JSON.stringify(wanted)}`);
}

/** The call fails with exactly that error of the SDK. */
export async function refused(errorClass, call) {
  let answer;
  try {
    answer = await call();
  } catch (error) {
    if (error instanceof errorClass) return;
    throw error;
  }
  throw new Error(`${errorClass.name} expected, got the answer ${JSON.stringify(answer)}`);
}

export async function collect(stream) {
  const frames = [];
  for await (const frame of stream) frames.push(frame);
  return frames;
}

/** Calls until the answer passes, five times a second; the scenario's own deadline ends it. */
export async function until(call, passes) {
  for (;;) {
    const answer = await call();
    if (passes(answer)) return answer;
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}
