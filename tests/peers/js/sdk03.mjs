// Official JavaScript SDK 0.3.14 against a server: `node sdk03.mjs BASE_URL [WORD …]`, over JSON-RPC, REST and
// gRPC.
//
// Over REST and gRPC this SDK drops `append` from artifact updates and the name from files; over JSON-RPC a refused
// stream is an error without a type.

import { createHash, randomUUID } from "node:crypto";
import {
  A2AClient,
  ClientFactory,
  ClientFactoryOptions,
  DefaultAgentCardResolver,
  TaskNotCancelableError,
  TaskNotFoundError,
  UnsupportedOperationError,
} from "a2a-js-0.3/client";
import { GrpcTransportFactory } from "a2a-js-0.3/client/grpc";
import { naming } from "./metadata.mjs";
import { baseUrl, collect, expect, refused, run, same, until } from "./report.mjs";

const BASE = baseUrl();
const TERMINAL = ["completed", "failed", "canceled", "rejected"];

async function card(mount, path) {
  return new DefaultAgentCardResolver().resolve(`${BASE}${mount}/`, path);
}

/** A client of the agent, from its card, over one binding. */
async function clientOf(lane, agent = "echo") {
  const byMetadata = lane.binding === "GRPC" ? agent : ""; // only the root's card lists it
  const options = ClientFactoryOptions.createFrom(ClientFactoryOptions.default, {
    preferredTransports: [lane.binding],
    transports: [new GrpcTransportFactory({ grpcCallOptions: naming(byMetadata) })],
  });
  const mount = lane.mount ?? (agent && !byMetadata ? `/agents/${agent}` : "");
  const client = await new ClientFactory(options).createFromUrl(`${BASE}${mount}/`);
  const transport = { JSONRPC: "JsonRpcTransport", "HTTP+JSON": "RestTransport", GRPC: "GrpcTransport" }[lane.binding];
  same(client.transport.constructor.name.replace("_", ""), transport, "transport");
  return client;
}

const OUTPUT_MODES = ["text/plain", "application/json", "application/octet-stream"];

/** Parameters with a user message of these parts (texts or parts). */
function message(parts, fields = {}, configuration = {}) {
  return {
    message: {
      kind: "message",
      messageId: randomUUID(),
      role: "user",
      parts: [parts].flat().map((part) => (typeof part === "string" ? { kind: "text", text: part } : part)),
      ...fields,
    },
    configuration: { acceptedOutputModes: OUTPUT_MODES, ...configuration },
  };
}

const partsOf = (task) => (task.artifacts ?? []).flatMap((artifact) => artifact.parts);
const textOf = (parts) => parts.map((part) => (part.kind === "text" ? part.text : "")).join("");
const filesOf = (task) => partsOf(task).filter((part) => part.kind === "file").map((part) => part.file);

/** The text of all artifacts, as a reader of the events has them. */
function folded(events, lane) {
  const artifacts = new Map();
  for (const event of events) {
    if (event.kind === "task") {
      for (const artifact of event.artifacts ?? []) artifacts.set(artifact.artifactId, textOf(artifact.parts));
    } else if (event.kind === "artifact-update") {
      const { artifactId, parts } = event.artifact;
      const append = lane.binding !== "JSONRPC" ? artifacts.has(artifactId) : event.append;
      expect(!append || artifacts.has(artifactId), "a chunk is appended to an artifact never begun");
      artifacts.set(artifactId, (append ? artifacts.get(artifactId) : "") + textOf(parts));
    }
  }
  return [...artifacts.values()].join("");
}

/** The stream ends with the only final status, in that state. */
function ends(events, state) {
  const last = events.at(-1);
  same([last.kind, last.final, last.status?.state], ["status-update", true, state], "last event");
  same(events.filter((event) => event.final).length, 1, "final events");
}

const scenarios = {
  async card() {
    for (const mount of ["", "/agents/echo"]) {
      const found = await card(mount);
      same(await card(mount, ".well-known/agent.json"), found, "agent.json");
      expect(found.name && found.url && found.skills.length, `card ${JSON.stringify(found)}`);
      expect(found.protocolVersion.startsWith("0.3"), `protocolVersion ${found.protocolVersion}`);
      same([found.capabilities.streaming, found.capabilities.pushNotifications ?? false], [true, true], "capabilities");
    }
  },

  async sendBlocking(lane) {
    for (const agent of ["echo", ""]) {
      const task = await (await clientOf(lane, agent)).sendMessage(message("héllo 🌍"));
      same([task.kind, task.status.state, textOf(partsOf(task))], ["task", "completed", "héllo 🌍"], "task");
      expect(task.id && task.contextId, "task or context has no id");
    }
  },

  async sendKeepsContext(lane) {
    const client = await clientOf(lane);
    const contextId = randomUUID();
    const first = await client.sendMessage(message("one", { contextId }));
    const second = await client.sendMessage(message("two", { contextId }));
    same([first.contextId, second.contextId], [contextId, contextId], "contexts");
    expect(first.id !== second.id, "two messages in a context made one task");
  },

  async sendData(lane) {
    const last = lane.binding === "GRPC" ? [] : [null]; // over gRPC this SDK cannot write a null
    const data = { city: "Lyon", days: 3, nested: { on: true, list: [1, "two", ...last] } };
    const task = await (await clientOf(lane)).sendMessage(message(["see", { kind: "data", data }]));
    same(partsOf(task).filter((part) => part.kind === "data").map((part) => part.data), [data], "data parts");
  },

  async sendNotBlocking(lane) {
    const client = await clientOf(lane, "countdown");
    const task = await client.sendMessage(message("2", {}, { blocking: false }));
    expect(!TERMINAL.includes(task.status.state), `state ${task.status.state} at once`);
    const done = await until(() => client.getTask({ id: task.id }), (seen) => TERMINAL.includes(seen.status.state));
    same(done.status.state, "completed", "state");
    expect(textOf(partsOf(done)), "no artifact");
  },

  async stream(lane) {
    const client = await clientOf(lane, "countdown");
    const events = await collect(client.sendMessageStream(message("2")));
    same(events[0].kind, "task", "first event");
    ends(events, "completed");
    expect(events.filter((event) => event.kind === "artifact-update").length >= 2, `events ${JSON.stringify(events)}`);
    const task = await client.getTask({ id: events[0].id });
    same(folded(events, lane), textOf(partsOf(task)), "content");
  },

  async getHistory(lane) {
    const client = await clientOf(lane);
    const { id } = await client.sendMessage(message("remember"));
    const { history } = await client.getTask({ id });
    same(textOf(history.find((said) => said.role === "user").parts), "remember", "history");
    same((await client.getTask({ id, historyLength: 1 })).history.length, 1, "historyLength 1");
  },

  async cancel(lane) {
    const client = await clientOf(lane, "countdown");
    const { id } = await client.sendMessage(message("30", {}, { blocking: false }));
    same((await client.cancelTask({ id })).status.state, "canceled", "state");
    same((await client.getTask({ id })).status.state, "canceled", "state");
    await refused(TaskNotCancelableError, () => client.cancelTask({ id }));
  },

  async resubscribe(lane) {
    const client = await clientOf(lane, "countdown");
    let id;
    for await (const event of client.sendMessageStream(message("50 every 0.1"))) {
      if (event.kind !== "artifact-update") continue;
      id = event.taskId;
      break;
    }
    const several = await Promise.all([1, 2].map(() => collect(client.resubscribeTask({ id }))));
    const content = textOf(partsOf(await client.getTask({ id })));
    for (const events of several) {
      ends(events, "completed");
      same(folded(events, lane), content, "content");
    }
  },

  async inputRequired(lane) {
    const client = await clientOf(lane, "trip");
    let asked = await client.sendMessage(message("book a trip"));
    const { id, contextId } = asked;
    for (const [question, answer] of [["From where?", "Lyon"], ["To where?", "Oslo"]]) {
      same([asked.status.state, textOf(asked.status.message.parts)], ["input-required", question], "status");
      asked = await client.sendMessage(message(answer, { taskId: id, contextId }));
      same(asked.id, id, "task");
    }
    same(asked.status.state, "completed", "state");
  },

  async inputRequiredStream(lane) {
    const client = await clientOf(lane, "trip");
    const events = await collect(client.sendMessageStream(message("book a trip")));
    ends(events, "input-required");
    const { id: taskId, contextId } = events[0];
    for (const [answer, state] of [["Lyon", "input-required"], ["Oslo", "completed"]]) {
      ends(await collect(client.sendMessageStream(message(answer, { taskId, contextId }))), state);
    }
  },

  async authRequired(lane) {
    const client = await clientOf(lane, "login");
    const { id: taskId, contextId, status } = await client.sendMessage(message("hello"));
    same(status.state, "auth-required", "state");
    const done = await client.sendMessage(message("here I am", { taskId, contextId }));
    same(done.status.state, "completed", "state");
  },

  async failed(lane) {
    same((await (await clientOf(lane, "fail")).sendMessage(message("try"))).status.state, "failed", "state");
  },

  async rejected(lane) {
    same((await (await clientOf(lane, "reject")).sendMessage(message("try"))).status.state, "rejected", "state");
  },

  async fileRoundTrip(lane) {
    const content = Buffer.from([0x25, 0x50, 0x44, 0x46, ...Array(256).keys()]);
    const file = { bytes: content.toString("base64"), name: "report.pdf", mimeType: "application/pdf" };
    const task = await (await clientOf(lane, "papers")).sendMessage(message(["keep this", { kind: "file", file }]));
    const found = filesOf(task);
    same(found.map(({ bytes, mimeType }) => [bytes, mimeType]), [[file.bytes, file.mimeType]], "file");
    if (lane.binding === "JSONRPC") same(found[0].name, file.name, "name");
    const facts = JSON.stringify(partsOf(task).filter((part) => part.kind === "data"));
    expect(facts.includes(createHash("sha256").update(content).digest("hex")), `no SHA-256 in ${facts}`);
  },

  async fileReceived(lane) {
    const task = await (await clientOf(lane, "papers")).sendMessage(message("any file"));
    expect(filesOf(task).some((file) => file.bytes), `no file in ${JSON.stringify(task.artifacts)}`);
  },

  async unknownTask(lane) {
    const client = await clientOf(lane);
    const unknown = randomUUID();
    await refused(TaskNotFoundError, () => client.getTask({ id: unknown }));
    await refused(TaskNotFoundError, () => client.cancelTask({ id: unknown }));
    await refused(TaskNotFoundError, () => client.sendMessage(message("to whom?", { taskId: unknown })));
    const typed = lane.binding === "JSONRPC" ? Error : TaskNotFoundError;
    await refused(typed, () => collect(client.resubscribeTask({ id: unknown })));
  },

  async foreignMount(lane) {
    const { id } = await (await clientOf(lane)).sendMessage(message("mine"));
    const other = await clientOf(lane, "papers");
    await refused(TaskNotFoundError, () => other.getTask({ id }));
  },

  async terminalTask(lane) {
    for (const agent of ["echo", "fail", "reject"]) {
      const client = await clientOf(lane, agent);
      const { id, contextId } = await client.sendMessage(message("done"));
      await refused(TaskNotCancelableError, () => client.cancelTask({ id }));
      await refused(Error, () => client.sendMessage(message("more", { taskId: id, contextId })));
    }
  },

  /** Registered, read, listed, forgotten; where they may not be, refused. Nobody listens at port 9. */
  async webhooks(lane) {
    const client = await clientOf(lane);
    const { id } = await client.sendMessage(message("push"));
    const url = "https://127.0.0.1:9/hook";
    const registration = (url) => ({ taskId: id, pushNotificationConfig: { id: "c", url, token: "mine" } });
    const one = { id, pushNotificationConfigId: "c" };
    const shown = ({ pushNotificationConfig: { id, url, token } }) => [id, url, token || ""];
    const wanted = ["c", url, lane.mount === "/a2a" ? "" : "mine"]; // in protoAgent's dialect it is a credential
    same(shown(await client.setTaskPushNotificationConfig(registration(url))), wanted, "made");
    same(shown(await client.getTaskPushNotificationConfig(one)), wanted, "got");
    same((await client.listTaskPushNotificationConfig({ id })).map(shown), [wanted], "listed");
    await client.deleteTaskPushNotificationConfig(one);
    same((await client.listTaskPushNotificationConfig({ id })), [], "listed once it is gone");
    await refused(Error, async () => client.setTaskPushNotificationConfig(registration("http://127.0.0.2/hook")));
  },
};

/** Over gRPC this SDK tells errors by the code and the procedure. */
const overGrpc = {
  async unsupported(lane) {
    const client = await clientOf(lane);
    const { id } = await client.sendMessage(message("done"));
    await refused(UnsupportedOperationError, () => collect(client.resubscribeTask({ id })));
  },

  /** The procedure of the extended card is also that of the public one, which is all that there is here. */
  async publicCard(lane) {
    const client = await clientOf(lane);
    same((await client.transport.getExtendedAgentCard()).name, "echo", "name");
  },
};

/** Where only the default agent is. */
const mounted = {
  async mountCard({ mount }) {
    const found = await card(mount);
    same(await card(mount, ".well-known/agent.json"), found, "agent.json");
    same(found.url, `${BASE}${mount}`, "url");
    expect(found.capabilities.extensions.some(({ uri }) => uri.includes("cost-v1")), "no extensions");
  },

  /** Its stream, read again, and canceled when it has ended. */
  async endedTask(lane) {
    const client = await clientOf(lane);
    const events = await collect(client.sendMessageStream(message("hello")));
    same(events[0].kind, "task", "first event");
    ends(events, "completed");
    const { id } = events[0];
    const text = (parts) => textOf(parts).trim();
    same([text(partsOf(await client.getTask({ id }))), folded(events, lane)], ["hello", "hello"], "content");
    same((await client.cancelTask({ id })).status.state, "completed", "state");
    const again = await collect(client.resubscribeTask({ id }));
    ends(again, "completed");
    same(folded(again, lane), "hello", "content");
  },
};
const MOUNTED = ["sendBlocking", "sendKeepsContext", "getHistory", "unknownTask", "webhooks"];
for (const name of MOUNTED) mounted[name] = scenarios[name];

/** The client class of the SDK's first releases, which gives answers and errors as JSON-RPC responses. */
async function firstClient() {
  const client = await A2AClient.fromCardUrl(`${BASE}/agents/echo/.well-known/agent.json`);
  const { result } = await client.sendMessage(message("hello", {}, { blocking: true }));
  same([result.kind, result.status.state, textOf(partsOf(result))], ["task", "completed", "hello"], "result");
  same((await client.getTask({ id: result.id })).result.id, result.id, "task");
  const events = await collect(client.sendMessageStream(message("hello")));
  ends(events, "completed");
  same((await client.getTask({ id: randomUUID() })).error.code, -32001, "code");
  same((await client.cancelTask({ id: result.id })).error.code, -32002, "code");
  const push = { id: result.id, pushNotificationConfigId: "c" };
  same((await client.getTaskPushNotificationConfig(push)).error.code, -32001, "code");
}

await run([
  ...["JSONRPC", "HTTP+JSON", "GRPC"].flatMap((binding) =>
    Object.entries(scenarios).map(([name, scenario]) => [`${binding}/${name}`, () => scenario({ binding })]),
  ),
  ...Object.entries(overGrpc).map(([name, scenario]) => [`GRPC/${name}`, () => scenario({ binding: "GRPC" })]),
  ...Object.entries(mounted).map(([name, scenario]) => [
    `JSONRPC at /a2a/${name}`,
    () => scenario({ binding: "JSONRPC", mount: "/a2a" }),
  ]),
  ["JSONRPC/firstClient", firstClient],
]);
