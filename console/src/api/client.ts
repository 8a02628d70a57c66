// The admin API. Types come from its OpenAPI document (`npm run types`), so that a change of the server breaks the build.

import { session } from "../lib/session.svelte";
import type { ErrorAnswer, operations } from "./schema";

const PREFIX = "/admin/v1";

/** A refusal of the server, or a failed connection (status 0). */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

export type Query = Readonly<Record<string, string | number | boolean | null | undefined>>;

type Json<O extends keyof operations> = operations[O] extends {
  responses: { 200: { content: { "application/json": infer Answer } } };
}
  ? Answer
  : never;

export type Answer<O extends keyof operations> = Json<O>;

/** Read something. Fields of the query that are empty are left out. */
export function get<O extends keyof operations>(
  path: string,
  query: Query = {},
  signal?: AbortSignal,
): Promise<Json<O>> {
  return call("GET", path + search(query), undefined, signal) as Promise<Json<O>>;
}

/** Change something. */
export function post<O extends keyof operations>(path: string, body: object = {}): Promise<Json<O>> {
  return call("POST", path, body) as Promise<Json<O>>;
}

export function remove<O extends keyof operations>(path: string): Promise<Json<O>> {
  return call("DELETE", path) as Promise<Json<O>>;
}

export function search(query: Query): string {
  const fields = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== "") fields.set(name, String(value));
  }
  const text = fields.toString();
  return text === "" ? "" : `?${text}`;
}

async function call(method: string, path: string, body?: object, signal?: AbortSignal): Promise<unknown> {
  const headers: Record<string, string> = {};
  if (method !== "GET") headers["x-dragoman-proof"] = session.proof;
  if (body !== undefined) headers["content-type"] = "application/json";
  let answer: Response;
  try {
    const sent = body === undefined ? {} : { body: JSON.stringify(body) };
    answer = await fetch(PREFIX + path, { method, headers, ...sent, ...(signal === undefined ? {} : { signal }) });
  } catch (error) {
    if (signal?.aborted === true) throw error;
    throw new ApiError(0, "the server cannot be reached");
  }
  if (answer.ok) return answer.json();
  if (answer.status === 401) session.lose();
  const refusal = (await answer.json().catch(() => null)) as ErrorAnswer | null;
  throw new ApiError(answer.status, refusal?.error.message ?? `the server answered ${answer.status}`);
}
