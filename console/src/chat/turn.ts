// A turn of a conversation: a message that was sent, and what the frames of the answer amount to so far.

import type { Artifact, Message, Part } from "../api/schema";
import { joinParts } from "../task/record";
import type { SendRequest, Status, StreamEvent } from "./a2a";

/** A report of a task at work. `share` of the work is done, if the agent counts. */
export interface Report {
  readonly text: string;
  readonly share: number | null;
}

export interface Turn {
  readonly sent: SendRequest;
  /** The bytes of the answer, frame by frame. */
  readonly frames: readonly string[];
  /** What the agent says to whoever asked; what it says of its work is in `reports`, newest last. */
  readonly messages: readonly Message[];
  readonly reports: readonly Report[];
  readonly artifacts: readonly { readonly id: string; readonly name: string; readonly parts: readonly Part[] }[];
  /** As A2A 1.0 spells it; empty without a task. */
  readonly state: string;
  readonly taskId: string | null;
  readonly contextId: string | null;
  readonly error: string | null;
  readonly running: boolean;
}

/** Of more reports the last ones are kept. */
const REPORTS_MAX = 200;

const PROGRESS = "urn:dragoman:progress:v1";
const AT_WORK = ["TASK_STATE_SUBMITTED", "TASK_STATE_WORKING"];
const WAITING = ["TASK_STATE_INPUT_REQUIRED", "TASK_STATE_AUTH_REQUIRED"];

export function beginTurn(sent: SendRequest): Turn {
  return {
    sent,
    frames: [],
    messages: [],
    reports: [],
    artifacts: [],
    state: "",
    taskId: null,
    contextId: null,
    error: null,
    running: true,
  };
}

/** The turn after one more frame. */
export function addFrame(turn: Turn, frame: string): Turn {
  const event = JSON.parse(frame) as StreamEvent;
  const next = { ...turn, frames: [...turn.frames, frame] };
  if (event.message) return { ...next, messages: [...turn.messages, event.message] };
  if (event.task) {
    const { id, contextId, status } = event.task;
    const artifacts = (event.task.artifacts ?? []).map(shown);
    return withStatus({ ...next, taskId: id, contextId, artifacts }, status, undefined);
  }
  if (event.statusUpdate) {
    const { taskId, contextId, status, metadata } = event.statusUpdate;
    const named = { taskId: taskId || turn.taskId, contextId: contextId || turn.contextId };
    return withStatus({ ...next, ...named }, status, metadata);
  }
  return event.artifactUpdate ? { ...next, artifacts: place(turn, event.artifactUpdate) } : next;
}

/** The frames of a turn that was kept; one that cannot be read ends it. */
export function readTurn(sent: SendRequest, frames: readonly string[], error: string | null): Turn {
  return { ...frames.reduce(addFrame, beginTurn(sent)), error, running: false };
}

/** Whether its task waits for an answer. */
export function waits(turn: Turn): boolean {
  return turn.taskId !== null && WAITING.includes(turn.state);
}

/** Whether its task has neither ended nor asked something. */
export function isAtWork(turn: Turn): boolean {
  return turn.taskId !== null && AT_WORK.includes(turn.state);
}

function withStatus(turn: Turn, status: Status, metadata: Readonly<Record<string, unknown>> | undefined): Turn {
  const { state, message } = status;
  const next = { ...turn, state };
  if (message === undefined) return next;
  if (!AT_WORK.includes(state)) {
    const known = turn.messages.some((each) => each.messageId === message.messageId);
    return known ? next : { ...next, messages: [...turn.messages, message] };
  }
  const text = message.parts.map((part) => part.text ?? "").join(" ");
  const before = turn.reports.slice(1 - REPORTS_MAX);
  return { ...next, reports: [...before, { text, share: shareOf(metadata?.[PROGRESS]) }] };
}

function shareOf(progress: unknown): number | null {
  const { current, total } = (progress ?? {}) as { current?: unknown; total?: unknown };
  if (typeof current !== "number" || typeof total !== "number" || total <= 0) return null;
  return Math.min(1, Math.max(0, current / total));
}

function shown(artifact: Artifact): Turn["artifacts"][number] {
  return { id: artifact.artifactId, name: artifact.name ?? artifact.artifactId, parts: artifact.parts };
}

function place(turn: Turn, update: NonNullable<StreamEvent["artifactUpdate"]>): Turn["artifacts"] {
  const artifact = update.artifact;
  const before = turn.artifacts.find((each) => each.id === artifact.artifactId);
  if (before === undefined) return [...turn.artifacts, shown(artifact)];
  const parts = update.append ? joinParts(before.parts, artifact.parts) : artifact.parts;
  return turn.artifacts.map((each) => (each === before ? { ...before, parts } : each));
}
