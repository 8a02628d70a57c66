// The agents that a conversation can be with: those of this server, which the page calls itself, and those elsewhere,
// which the server calls for it. A credential for one elsewhere is sent with each exchange, and kept in the page alone.

import type { Card } from "../agents/card";
import { ApiError, post } from "../api/client";
import type { RemoteAnswer, RemoteCredential, RemoteEnd, RemoteEndpoint, RemoteUpdate } from "../api/schema";
import { session } from "../lib/session.svelte";
import { postForEvents, type SendRequest, type StreamEvent } from "./a2a";

/** How a program reaches an agent: the URL to connect to, its endpoint, and the header that holds a key, if any. */
export interface Address {
  readonly url: string;
  readonly endpoint: string;
  readonly binding: string;
  readonly dialect: string;
  readonly keyHeader: string | null;
}

export interface Peer {
  readonly name: string;
  readonly address: Address;
  /** Send a message, and yield what the agent answers: StreamResponses of A2A 1.0 as JSON. */
  stream(request: SendRequest, signal: AbortSignal): AsyncGenerator<string>;
  /** Whether its tasks have a page in this console. */
  readonly hasTasksHere: boolean;
  /** Read or cancel a task. */
  call(action: "task" | "task:cancel", taskId: string): Promise<StreamEvent>;
  /** Yield what becomes of a task, beginning with the task as it stands. */
  follow?(taskId: string, signal: AbortSignal): AsyncGenerator<string>;
}

const V1 = { "a2a-version": "1.0" };
const INTERRUPTED = ["TASK_STATE_INPUT_REQUIRED", "TASK_STATE_AUTH_REQUIRED"];
const OVER = [
  ...INTERRUPTED,
  "TASK_STATE_COMPLETED",
  "TASK_STATE_FAILED",
  "TASK_STATE_CANCELED",
  "TASK_STATE_REJECTED",
];

type Task = NonNullable<StreamEvent["task"]>;

/** Read a task of this server as its client does, or cancel it. */
async function callTask(url: string, taskId: string, action: "" | ":cancel"): Promise<Task> {
  const answer = await fetch(`${url}/tasks/${encodeURIComponent(taskId)}${action}`, {
    headers: { ...V1, "content-type": "application/json", "x-dragoman-proof": session.proof },
    ...(action === "" ? {} : { method: "POST", body: "{}" }),
  });
  if (answer.ok) return (await answer.json()) as Task;
  if (answer.status === 401) session.lose();
  const refusal = (await answer.json().catch(() => null)) as { error?: { message?: string } } | null;
  throw new ApiError(answer.status, refusal?.error?.message ?? `the server answered ${answer.status}`);
}

export function localAgent(id: string, keyed: boolean): Peer {
  const url = `${location.origin}/agents/${encodeURIComponent(id)}`;
  return {
    name: id,
    address: { url, endpoint: url, binding: "HTTP+JSON", dialect: "1.0", keyHeader: keyed ? "x-api-key" : null },
    hasTasksHere: true,
    async *stream(request, signal) {
      const extensions = (request.message.extensions ?? []).join(", ");
      const headers = { "a2a-version": "1.0", ...(extensions === "" ? {} : { "a2a-extensions": extensions }) };
      for await (const event of postForEvents(`${url}/message:stream`, request, headers, signal)) yield event.data;
    },
    async call(action, taskId) {
      return { task: await callTask(url, taskId, action === "task" ? "" : ":cancel") };
    },
    async *follow(taskId, signal) {
      const task = await callTask(url, taskId, "");
      yield JSON.stringify({ task } satisfies StreamEvent);
      if (OVER.includes(task.status.state)) return;
      const to = `${url}/tasks/${encodeURIComponent(taskId)}:subscribe`;
      for await (const event of postForEvents(to, {}, V1, signal)) {
        yield event.data;
        const { statusUpdate } = JSON.parse(event.data) as StreamEvent;
        if (statusUpdate && INTERRUPTED.includes(statusUpdate.status.state)) return;
      }
    },
  };
}

/** What an operator has given for an agent elsewhere: without a dialect, its card has been read. */
export interface RemoteAccess {
  readonly url: string;
  readonly name: string;
  readonly endpoint: RemoteEndpoint | null;
  readonly card: Card | null;
  readonly dialect: string;
  readonly credential: RemoteCredential | null;
}

export function remoteAgent(access: RemoteAccess): Peer {
  const { endpoint, dialect } = access;
  const given = {
    url: access.url,
    ...(access.credential === null ? {} : { credential: access.credential }),
    ...(dialect !== "" ? { dialect } : {}),
    ...(dialect === "" && endpoint !== null
      ? { endpoint: { url: endpoint.url, binding: endpoint.binding, dialect: endpoint.dialect } }
      : {}),
  };
  return {
    name: access.name,
    address: {
      url: access.url,
      endpoint: endpoint?.url ?? access.url,
      binding: endpoint?.binding ?? "",
      dialect: dialect || (endpoint?.dialect ?? "1.0"),
      keyHeader: headerOf(access.credential),
    },
    hasTasksHere: false,
    async *stream(request, signal) {
      const body = { ...given, request };
      for await (const event of postForEvents("/admin/v1/remote/stream", body, {}, signal)) {
        if (event.name === "update") yield JSON.stringify((JSON.parse(event.data) as RemoteUpdate).update);
        else told((JSON.parse(event.data) as RemoteEnd).failure);
      }
    },
    async call(action, taskId) {
      const operation = { ...given, task_id: taskId };
      const found: RemoteAnswer =
        action === "task"
          ? await post<"readRemoteTask">("/remote/task", operation)
          : await post<"cancelRemoteTask">("/remote/task:cancel", operation);
      told(found.failure);
      return found.answer as StreamEvent;
    },
  };
}

function told(failure: RemoteAnswer["failure"] | undefined): void {
  if (failure) throw new ApiError(200, `${failure.name}: ${failure.message}`);
}

function headerOf(credential: RemoteCredential | null): string | null {
  if (credential === null) return null;
  return credential.kind === "bearer" ? "Authorization" : (credential.header ?? "x-api-key");
}
