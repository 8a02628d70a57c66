// A2A 1.0 over HTTP+JSON, as the console speaks it to the server's own agents: one message, and the stream that answers.

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
}

export interface SendRequest {
  readonly message: SentMessage;
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
  readonly statusUpdate?: { readonly taskId: string; readonly contextId: string; readonly status: Status };
  readonly artifactUpdate?: {
    readonly taskId: string;
    readonly artifact: Artifact;
    readonly append?: boolean;
    readonly lastChunk?: boolean;
  };
}

export function agentUrl(agent: string): string {
  return `${location.origin}/agents/${encodeURIComponent(agent)}`;
}

/** Send a message and yield what the agent answers, each event as soon as it is here. */
export async function* stream(agent: string, request: SendRequest, signal: AbortSignal): AsyncGenerator<string> {
  const answer = await fetch(`${agentUrl(agent)}/message:stream`, {
    method: "POST",
    headers: {
      "content-type": "application/json",
      accept: "text/event-stream",
      "a2a-version": "1.0",
      "x-dragoman-proof": session.proof,
    },
    body: JSON.stringify(request),
    signal,
  });
  if (!answer.ok || answer.body === null) {
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
      const data = block
        .split(/\r?\n/)
        .filter((line) => line.startsWith("data:"))
        .map((line) => line.slice(5).replace(/^ /, ""))
        .join("\n");
      if (data !== "") yield data;
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
