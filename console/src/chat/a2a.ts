// Messages and answers of A2A 1.0 over HTTP+JSON, as the console sends and reads them, whoever the agent is.

import { ApiError } from "../api/client";
import type { Artifact, Message, Part } from "../api/schema";
import { session } from "../lib/session.svelte";

/** A part to send: only the fields that are set. */
export type SentPart = Partial<Pick<Part, "text" | "raw" | "data" | "filename" | "mediaType">>;

export interface SentMessage {
  readonly messageId: string;
  readonly role: "ROLE_USER";
  readonly parts: readonly SentPart[];
  readonly contextId?: string;
  readonly taskId?: string;
  readonly extensions?: readonly string[];
}

/** How messages are sent, as somebody has chosen it; what is empty is left out. */
export interface MessageOptions {
  readonly skill: string;
  readonly context: string;
  readonly extensions: readonly string[];
}

export const NO_OPTIONS: MessageOptions = { skill: "", context: "", extensions: [] };

/** The request that begins a task with a message of these parts, or that answers the question of `task`. */
export function newRequest(
  parts: readonly SentPart[],
  { skill, context, extensions }: MessageOptions = NO_OPTIONS,
  task: string | null = null,
): SendRequest {
  return {
    message: {
      messageId: crypto.randomUUID(),
      role: "ROLE_USER",
      parts,
      ...(context === "" ? {} : { contextId: context }),
      ...(task === null ? {} : { taskId: task }),
      ...(extensions.length === 0 ? {} : { extensions }),
    },
    ...(skill === "" ? {} : { metadata: { skill } }),
  };
}

export interface SendRequest {
  readonly message: SentMessage;
  readonly metadata?: Readonly<Record<string, unknown>>;
}

export interface Status {
  readonly state: string;
  readonly message?: Message;
}

/** One event of the stream: exactly one of the four is there. */
export interface StreamEvent {
  readonly task?: {
    readonly id: string;
    readonly contextId: string;
    readonly status: Status;
    readonly artifacts?: readonly Artifact[];
  };
  readonly message?: Message;
  readonly statusUpdate?: {
    readonly taskId: string;
    readonly contextId: string;
    readonly status: Status;
    readonly metadata?: Readonly<Record<string, unknown>>;
  };
  readonly artifactUpdate?: {
    readonly taskId: string;
    readonly artifact: Artifact;
    readonly append?: boolean;
    readonly lastChunk?: boolean;
  };
}

export interface ServerEvent {
  readonly name: string;
  readonly data: string;
}

/** POST a body with the proof of the session, and yield the events of the answer, each as soon as it is here. */
export async function* postForEvents(
  url: string,
  body: object,
  headers: Readonly<Record<string, string>>,
  signal: AbortSignal,
): AsyncGenerator<ServerEvent> {
  const answer = await fetch(url, {
    method: "POST",
    headers: {
      "content-type": "application/json",
      accept: "text/event-stream",
      "x-dragoman-proof": session.proof,
      ...headers,
    },
    body: JSON.stringify(body),
    signal,
  });
  if (!answer.ok || answer.body === null) {
    if (answer.status === 401) session.lose();
    const refusal = (await answer.json().catch(() => null)) as { error?: { message?: string } } | null;
    throw new ApiError(answer.status, refusal?.error?.message ?? `the server answered ${answer.status}`);
  }
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += value;
    const blocks = text.split(/\r?\n\r?\n/);
    text = blocks.pop() ?? "";
    for (const block of blocks) {
      const lines = block.split(/\r?\n/);
      const field = (name: string): string[] =>
        lines
          .filter((line) => line.startsWith(`${name}:`))
          .map((line) => line.slice(name.length + 1).replace(/^ /, ""));
      const data = field("data").join("\n");
      if (data !== "") yield { name: field("event").at(-1) ?? "message", data };
    }
  }
}

/** A file as a part. */
export async function filePart(file: File): Promise<SentPart> {
  const bytes = new Uint8Array(await file.arrayBuffer());
  let binary = "";
  for (const byte of bytes) binary += String.fromCharCode(byte);
  return { raw: btoa(binary), filename: file.name, mediaType: file.type || "application/octet-stream" };
}
