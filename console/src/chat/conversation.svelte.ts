// A conversation with one agent: what was said on both sides, and the task that the last message belongs to.

import type { Artifact, Message, Part } from "../api/schema";
import { joinParts } from "../task/record";
import { NO_OPTIONS, type MessageOptions, type SendRequest, type SentPart, type Status, type StreamEvent } from "./a2a";
import type { Peer } from "./peer";

export interface Turn {
  readonly sent: SendRequest;
  readonly frames: readonly string[];
  readonly messages: readonly Message[];
  readonly artifacts: readonly { readonly id: string; readonly name: string; readonly parts: readonly Part[] }[];
  readonly state: string;
  readonly taskId: string | null;
  readonly error: string | null;
  readonly running: boolean;
}

const WAITING = ["TASK_STATE_INPUT_REQUIRED", "TASK_STATE_AUTH_REQUIRED"];

export class Conversation {
  turns = $state.raw<readonly Turn[]>([]);
  #stop = new AbortController();
  #contextId: string | undefined;

  constructor(readonly peer: Peer) {}

  get busy(): boolean {
    return this.turns.at(-1)?.running ?? false;
  }

  /** The request that a message with these parts becomes: it continues a task that waits for an answer. */
  request(parts: readonly SentPart[], { skill, context, extensions }: MessageOptions = NO_OPTIONS): SendRequest {
    const last = this.turns.at(-1);
    const waits = last !== undefined && WAITING.includes(last.state) && last.taskId !== null;
    const contextId = context || (this.#contextId ?? "");
    return {
      message: {
        messageId: crypto.randomUUID(),
        role: "ROLE_USER",
        parts,
        ...(contextId === "" ? {} : { contextId }),
        ...(waits && last.taskId !== null ? { taskId: last.taskId } : {}),
        ...(extensions.length === 0 ? {} : { extensions }),
      },
      ...(skill === "" ? {} : { metadata: { skill } }),
    };
  }

  /** Send a request: one made of parts by `request`, or one that was written by hand. */
  async send(sent: SendRequest): Promise<void> {
    const index = this.turns.length;
    let turn: Turn = {
      sent,
      frames: [],
      messages: [],
      artifacts: [],
      state: "",
      taskId: null,
      error: null,
      running: true,
    };
    const show = (changes: Partial<Turn>): void => {
      turn = { ...turn, ...changes };
      this.turns = [...this.turns.slice(0, index), turn, ...this.turns.slice(index + 1)];
    };
    show({});
    try {
      for await (const frame of this.peer.stream(sent, this.#stop.signal)) {
        show({ ...this.#read(turn, JSON.parse(frame) as StreamEvent), frames: [...turn.frames, frame] });
      }
    } catch (problem) {
      if (!this.#stop.signal.aborted) show({ error: problem instanceof Error ? problem.message : String(problem) });
    }
    show({ running: false });
  }

  /** Read or cancel the task of a turn with an agent elsewhere. */
  async call(index: number, action: "task" | "task:cancel"): Promise<void> {
    const turn = this.turns[index];
    if (turn === undefined || turn.taskId === null || this.peer.call === undefined) return;
    let changes: Partial<Turn>;
    try {
      const event = await this.peer.call(action, turn.taskId);
      changes = { ...this.#read(turn, event), frames: [...turn.frames, JSON.stringify(event)], error: null };
    } catch (problem) {
      changes = { error: problem instanceof Error ? problem.message : String(problem) };
    }
    this.turns = this.turns.map((each, at) => (at === index ? { ...each, ...changes } : each));
  }

  /** Leave the conversation. Tasks go on. */
  close(): void {
    this.#stop.abort();
  }

  #read(turn: Turn, event: StreamEvent): Partial<Turn> {
    if (event.message) return { messages: [...turn.messages, event.message] };
    if (event.task) {
      this.#contextId = event.task.contextId;
      const artifacts = (event.task.artifacts ?? []).map(shown);
      return { taskId: event.task.id, ...this.#status(turn, event.task.status), artifacts };
    }
    if (event.statusUpdate) {
      this.#contextId = event.statusUpdate.contextId || this.#contextId;
      const taskId = event.statusUpdate.taskId || turn.taskId;
      return { taskId, ...this.#status(turn, event.statusUpdate.status) };
    }
    if (event.artifactUpdate) return { artifacts: placed(turn, event.artifactUpdate) };
    return {};
  }

  #status(turn: Turn, said: Status): Partial<Turn> {
    const message = said.message;
    const known = message === undefined || turn.messages.some((each) => each.messageId === message.messageId);
    return { state: said.state, messages: known ? turn.messages : [...turn.messages, message] };
  }
}

function shown(artifact: Artifact): Turn["artifacts"][number] {
  return { id: artifact.artifactId, name: artifact.name ?? artifact.artifactId, parts: artifact.parts };
}

function placed(turn: Turn, update: NonNullable<StreamEvent["artifactUpdate"]>): Turn["artifacts"] {
  const artifact = update.artifact;
  const before = turn.artifacts.find((each) => each.id === artifact.artifactId);
  if (before === undefined) return [...turn.artifacts, shown(artifact)];
  const parts = update.append ? joinParts(before.parts, artifact.parts) : artifact.parts;
  return turn.artifacts.map((each) => (each === before ? { ...before, parts } : each));
}
