// Official JavaScript SDK 1.3.0 against a server: `node sdk1.mjs BASE_URL [WORD …]`.
//
// Speaks 1.0 and, in the SDK's compatibility mode, 0.3, each over JSON-RPC, HTTP+JSON and gRPC. A
// scenario expects what the specification says, not what the SDK's own server does.

import { createHash, randomUUID } from "node:crypto";
import { CancelTaskRequest, GetTaskRequest, ListTasksRequest, Role, SendMessageRequest, TaskState } from "a2a-js-1";
import { ClientFactory, DefaultAgentCardResolver, JsonRpcTransportFactory, RestTransportFactory } from "a2a-js-1/client";
import {
  A2AError,
  TaskNotCancelableError,
  TaskNotFoundError,
  UnsupportedOperationError,
  VersionNotSupportedError,
} from "a2a-js-1/errors";
import { GrpcTransportFactory } from "a2a-js-1/client/grpc";
import { naming } from "./metadata.mjs";
import { baseUrl, collect, expect, refused, run, same, until } from "./report.mjs";

const BASE = baseUrl();
const TERMINAL = ["COMPLETED", "FAILED", "CANCELED", "REJECTED"];

async function card(mount, path) {
  return new DefaultAgentCardResolver().resolve(`${BASE}${mount}/`, path);
}

/**
 * A client of the agent, from its card, narrowed to one binding and protocol version.
 *
 * Over gRPC only the root's card lists 0.3, and the metadata names the agent. In 1.0 the tenant of the card does.
 */
async function clientOf(lane, agent = "echo") {
  const byMetadata = lane.binding === "GRPC" && lane.version === "0.3" ? agent : "";
  const agentCard = await card(lane.mount ?? (agent && !byMetadata ? `/agents/${agent}` : ""));
  const here = agentCard.supportedInterfaces.filter((i) => i.protocolBinding === lane.binding);
  expect(here.length, `the card of ${agent} offers no ${lane.binding}`);
  const exact = here.find((i) => i.protocolVersion === lane.version);
  agentCard.supportedInterfaces = [exact ?? { ...here[0], protocolVersion: lane.version }];
  const options = { legacyCompat: { enabled: lane.version === "0.3" } };
  const transports = [
    new JsonRpcTransportFactory(options),
    new RestTransportFactory(options),
    new GrpcTransportFactory({ ...options, grpcCallOptions: naming(byMetadata) }),
  ];
  return new ClientFactory({ transports }).createFromAgentCard(agentCard);
}

/** A request with a user message of these parts (texts or parts in ProtoJSON). */
function message(parts, fields = {}, configuration = {}) {
  return SendMessageRequest.fromJSON({
    message: {
      messageId: randomUUID(),
      role: "ROLE_USER",
      parts: [parts].flat().map((part) => (typeof part === "string" ? { text: part } : part)),
      ...fields,
    },
    configuration,
  });
}

const stateOf = (task) => TaskState[task.status.state].replace("TASK_STATE_", "");
const partsOf = (task) => task.artifacts.flatMap((artifact) => artifact.parts);
const textOf = (parts) => parts.map((part) => (part.content?.$case === "text" ? part.content.value : "")).join("");
const valuesOf = (parts, kind) => parts.filter((part) => part.content?.$case === kind).map((part) => part.content.value);
const get = (client, id, fields = {}) => client.getTask(GetTaskRequest.fromJSON({ id, ...fields }));
const cancelTask = (client, id) => client.cancelTask(CancelTaskRequest.fromJSON({ id }));
const subscribeTo = (client, id) => collect(client.resubscribeTask({ tenant: "", id }));

/** Over 0.3's HTTP+JSON and gRPC this SDK drops `append` from artifact updates and the name from files. */
const isLossy = (lane) => lane.version === "0.3" && lane.binding !== "JSONRPC";

/** The text of all artifacts and the last state, as a reader of the frames has them. */
function folded(frames, lane) {
  const artifacts = new Map();
  let state;
  for (const { payload } of frames) {
    const { value } = payload;
    switch (payload.$case) {
      case "task":
        for (const artifact of value.artifacts) artifacts.set(artifact.artifactId, textOf(artifact.parts));
        state = stateOf(value);
        break;
      case "artifactUpdate": {
        const { artifactId, parts } = value.artifact;
        const append = isLossy(lane) ? artifacts.has(artifactId) : value.append;
        expect(!append || artifacts.has(artifactId), "a chunk is appended to an artifact never begun");
        artifacts.set(artifactId, (append ? artifacts.get(artifactId) : "") + textOf(parts));
        break;
      }
      case "statusUpdate":
        state = stateOf(value);
        break;
      default:
        throw new Error(`unexpected frame ${JSON.stringify(payload)}`);
    }
  }
  return [[...artifacts.values()].join(""), state];
}

const both = {
  async card() {
    for (const mount of ["", "/agents/echo"]) {
      const found = await card(mount);
      same(await card(mount, ".well-known/agent.json"), found, "agent.json");
      expect(found.name && found.skills.length, `card ${JSON.stringify(found)}`);
      same(found.capabilities.streaming, true, "streaming");
      expect(found.capabilities.pushNotifications, "the card does not offer push notifications");
    }
  },

  async sendBlocking(lane) {
    for (const agent of ["echo", ""]) {
      const task = await (await clientOf(lane, agent)).sendMessage(message("héllo 🌍"));
      same([stateOf(task), textOf(partsOf(task))], ["COMPLETED", "héllo 🌍"], "task");
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
    const data = { city: "Lyon", days: 3, nested: { on: true, list: [1, "two", null] } };
    const task = await (await clientOf(lane)).sendMessage(message(["see", { data }]));
    same(valuesOf(partsOf(task), "data"), [data], "data parts");
  },

  async sendNotBlocking(lane) {
    const client = await clientOf(lane, "countdown");
    const task = await client.sendMessage(message("2", {}, { returnImmediately: true }));
    expect(!TERMINAL.includes(stateOf(task)), `state ${stateOf(task)} at once`);
    const done = await until(() => get(client, task.id), (seen) => TERMINAL.includes(stateOf(seen)));
    same(stateOf(done), "COMPLETED", "state");
    expect(textOf(partsOf(done)), "no artifact");
  },

  async stream(lane) {
    const client = await clientOf(lane, "countdown");
    const frames = await collect(client.sendMessageStream(message("2")));
    const kinds = frames.map((frame) => frame.payload.$case);
    same(kinds[0], "task", "first frame (§3.1.2)");
    expect(kinds.filter((kind) => kind === "artifactUpdate").length >= 2, `frames ${kinds}`);
    const task = await get(client, frames[0].payload.value.id);
    same(folded(frames, lane), [textOf(partsOf(task)), "COMPLETED"], "stream");
  },

  async getHistory(lane) {
    const client = await clientOf(lane);
    const { id } = await client.sendMessage(message("remember"));
    const whole = await get(client, id);
    same(textOf(whole.history.find((m) => m.role === Role.ROLE_USER).parts), "remember", "history");
    same((await get(client, id, { historyLength: 1 })).history.length, 1, "historyLength 1");
  },

  async cancel(lane) {
    const client = await clientOf(lane, "countdown");
    const { id } = await client.sendMessage(message("30", {}, { returnImmediately: true }));
    same(stateOf(await cancelTask(client, id)), "CANCELED", "state");
    same(stateOf(await get(client, id)), "CANCELED", "state");
  },

  async cancelAgain(lane) {
    const client = await clientOf(lane, "trip");
    const { id } = await client.sendMessage(message("book a trip"));
    same(stateOf(await cancelTask(client, id)), "CANCELED", "state");
    if (lane.version === "1.0") same(stateOf(await cancelTask(client, id)), "CANCELED", "state, asked again (§3.3.1)");
    else await refused(TaskNotCancelableError, () => cancelTask(client, id));
  },

  async subscribe(lane) {
    const client = await clientOf(lane, "countdown");
    const { id } = await client.sendMessage(message("50 every 0.1", {}, { returnImmediately: true }));
    const several = await Promise.all([1, 2, 3].map(() => subscribeTo(client, id)));
    const content = textOf(partsOf(await get(client, id)));
    for (const frames of several) {
      same(frames[0].payload.$case, "task", "first frame (§3.1.6)");
      same(folded(frames, lane), [content, "COMPLETED"], "subscription");
    }
  },

  async resubscribe(lane) {
    const client = await clientOf(lane, "countdown");
    let id;
    for await (const { payload } of client.sendMessageStream(message("50 every 0.1"))) {
      if (payload.$case !== "artifactUpdate") continue;
      id = payload.value.taskId;
      break;
    }
    const frames = await subscribeTo(client, id);
    same(folded(frames, lane), [textOf(partsOf(await get(client, id))), "COMPLETED"], "subscription");
  },

  async inputRequired(lane) {
    const client = await clientOf(lane, "trip");
    let asked = await client.sendMessage(message("book a trip"));
    const { id, contextId } = asked;
    for (const [question, answer] of [["From where?", "Lyon"], ["To where?", "Oslo"]]) {
      same([stateOf(asked), textOf(asked.status.message.parts)], ["INPUT_REQUIRED", question], "status");
      asked = await client.sendMessage(message(answer, { taskId: id, contextId }));
      same(asked.id, id, "task");
    }
    same(stateOf(asked), "COMPLETED", "state");
  },

  async inputRequiredStream(lane) {
    const client = await clientOf(lane, "trip");
    const frames = await collect(client.sendMessageStream(message("book a trip")));
    same(folded(frames, lane)[1], "INPUT_REQUIRED", "state");
    const { id: taskId, contextId } = frames[0].payload.value;
    for (const [answer, state] of [["Lyon", "INPUT_REQUIRED"], ["Oslo", "COMPLETED"]]) {
      const more = await collect(client.sendMessageStream(message(answer, { taskId, contextId })));
      same(folded(more, lane)[1], state, `state after ${answer}`);
    }
  },

  async authRequired(lane) {
    const client = await clientOf(lane, "login");
    const task = await client.sendMessage(message("hello"));
    same(stateOf(task), "AUTH_REQUIRED", "state");
    const { id: taskId, contextId } = task;
    same(stateOf(await client.sendMessage(message("here I am", { taskId, contextId }))), "COMPLETED", "state");
  },

  async failed(lane) {
    same(stateOf(await (await clientOf(lane, "fail")).sendMessage(message("try"))), "FAILED", "state");
  },

  async rejected(lane) {
    same(stateOf(await (await clientOf(lane, "reject")).sendMessage(message("try"))), "REJECTED", "state");
  },

  async fileRoundTrip(lane) {
    const content = Buffer.from([0x25, 0x50, 0x44, 0x46, ...Array(256).keys()]);
    const file = { raw: content.toString("base64"), filename: "report.pdf", mediaType: "application/pdf" };
    const task = await (await clientOf(lane, "papers")).sendMessage(message(["keep this", file]));
    const found = partsOf(task).filter((part) => part.content.$case === "raw");
    same(found.map((part) => [Buffer.from(part.content.value).toString("base64"), part.mediaType]),
      [[file.raw, file.mediaType]], "file");
    if (!isLossy(lane)) same(found[0].filename, file.filename, "filename");
    const facts = JSON.stringify(valuesOf(partsOf(task), "data"));
    expect(facts.includes(createHash("sha256").update(content).digest("hex")), `no SHA-256 in ${facts}`);
  },

  async fileReceived(lane) {
    const task = await (await clientOf(lane, "papers")).sendMessage(message("any file"));
    expect(partsOf(task).some((part) => part.content.$case === "raw" || part.mediaType.startsWith("text/")),
      `no file in ${JSON.stringify(task.artifacts)}`);
  },

  async unknownTask(lane) {
    const client = await clientOf(lane);
    const unknown = randomUUID();
    await refused(TaskNotFoundError, () => get(client, unknown));
    await refused(TaskNotFoundError, () => cancelTask(client, unknown));
    await refused(TaskNotFoundError, () => subscribeTo(client, unknown));
    await refused(TaskNotFoundError, () => client.sendMessage(message("to whom?", { taskId: unknown })));
  },

  async foreignMount(lane) {
    const { id } = await (await clientOf(lane)).sendMessage(message("mine"));
    const other = await clientOf(lane, "papers");
    await refused(TaskNotFoundError, () => get(other, id));
  },

  async terminalTask(lane) {
    for (const agent of ["echo", "fail", "reject"]) {
      const client = await clientOf(lane, agent);
      const { id } = await client.sendMessage(message("done"));
      await refused(TaskNotCancelableError, () => cancelTask(client, id));
      if (lane.version !== "1.0") continue;
      await refused(UnsupportedOperationError, () => client.sendMessage(message("more", { taskId: id })));
      await refused(UnsupportedOperationError, () => subscribeTo(client, id));
    }
  },

  async mismatchedContext(lane) {
    const client = await clientOf(lane, "trip");
    const { id } = await client.sendMessage(message("book"));
    const wrong = message("Lyon", { taskId: id, contextId: randomUUID() });
    await refused(lane.version === "1.0" ? A2AError : Error, () => client.sendMessage(wrong));
    same(stateOf(await get(client, id)), "INPUT_REQUIRED", "state");
  },

  /** Registered, read, listed, forgotten; where they may not be, refused. Nobody listens at port 9. */
  async webhooks(lane) {
    const client = await clientOf(lane);
    const { id: taskId } = await client.sendMessage(message("push"));
    const one = { tenant: "", taskId, id: "c" };
    const config = { ...one, url: "https://127.0.0.1:9/hook", token: "mine", authentication: undefined };
    const page = { tenant: "", taskId, pageSize: 0, pageToken: "" };
    const shown = ({ taskId, id, url, token }) => [taskId, id, url, token];
    // In protoAgent's dialect the token is the credential of the calls.
    const token = lane.mount === "/a2a" && lane.version === "0.3" ? "" : "mine";
    const wanted = [taskId, "c", config.url, token];
    same(shown(await client.createTaskPushNotificationConfig(config)), wanted, "made");
    same(shown(await client.getTaskPushNotificationConfig(one)), wanted, "got");
    same((await client.listTaskPushNotificationConfig(page)).configs.map(shown), [wanted], "listed");
    await client.deleteTaskPushNotificationConfig(one);
    same((await client.listTaskPushNotificationConfig(page)).configs, [], "listed once it is gone");
    const hostile = { ...config, url: "http://127.0.0.2/hook" };
    await refused(A2AError, async () => client.createTaskPushNotificationConfig(hostile));
  },
};

const only10 = {
  async historyOfZero(lane) {
    const client = await clientOf(lane);
    const { id } = await client.sendMessage(message("remember"));
    same((await get(client, id, { historyLength: 0 })).history, [], "historyLength 0");
  },

  async listPages(lane) {
    const client = await clientOf(lane);
    const contextId = randomUUID();
    const made = [];
    for (const n of [0, 1, 2]) made.unshift((await client.sendMessage(message(`task ${n}`, { contextId }))).id);
    const list = (fields) => client.listTasks(ListTasksRequest.fromJSON({ contextId, ...fields }));
    const first = await list({ pageSize: 2 });
    same([first.totalSize, first.pageSize], [3, 2], "total and page size");
    expect(first.nextPageToken, "no token for the second page");
    same(first.tasks.flatMap((task) => task.artifacts), [], "artifacts that nobody asked for");
    const second = await list({ pageSize: 2, pageToken: first.nextPageToken, includeArtifacts: true });
    same(second.nextPageToken, "", "token after the last page");
    same([...first.tasks, ...second.tasks].map((task) => task.id), made, "tasks, newest first");
    same(textOf(partsOf(second.tasks[0])), "task 0", "artifact");
    same((await list({ status: "TASK_STATE_FAILED" })).totalSize, 0, "failed tasks");
  },

  async extendedCard(lane) {
    const { transport } = await clientOf(lane);
    const headers = { serviceParameters: { "A2A-Version": "1.0" } };
    await refused(UnsupportedOperationError, async () => transport.getExtendedAgentCard({ tenant: "" }, headers));
  },

  async unknownVersion(lane) {
    const { transport } = await clientOf(lane);
    const headers = { serviceParameters: { "A2A-Version": "9.9" } };
    const request = GetTaskRequest.fromJSON({ id: randomUUID() });
    await refused(VersionNotSupportedError, async () => transport.getTask(request, headers));
  },
};

/** Where only the default agent is. */
const mounted = {
  async mountCard({ mount }) {
    const found = await card(mount);
    same(await card(mount, ".well-known/agent.json"), found, "agent.json");
    same([...new Set(found.supportedInterfaces.map(({ url }) => url))], [`${BASE}${mount}`], "urls");
    expect(found.capabilities.extensions.some(({ uri }) => uri.includes("cost-v1")), "no extensions");
  },

  /** Its stream, read again, and canceled when it has ended. */
  async endedTask(lane) {
    const client = await clientOf(lane);
    const frames = await collect(client.sendMessageStream(message("hello")));
    same(frames[0].payload.$case, "task", "first frame");
    same(folded(frames, lane), ["hello", "COMPLETED"], "stream");
    const { id } = frames[0].payload.value;
    same(textOf(partsOf(await get(client, id))), "hello", "content");
    if (lane.version === "1.0") {
      await refused(TaskNotCancelableError, () => cancelTask(client, id));
      await refused(UnsupportedOperationError, () => subscribeTo(client, id));
      return;
    }
    same(stateOf(await cancelTask(client, id)), "COMPLETED", "state");
    same(folded(await subscribeTo(client, id), lane), ["hello", "COMPLETED"], "subscription");
  },
};
const MOUNTED = ["sendBlocking", "sendKeepsContext", "getHistory", "unknownTask", "webhooks"];
for (const name of MOUNTED) mounted[name] = both[name];

const lanes = ["1.0", "0.3"].flatMap((version) => ["JSONRPC", "HTTP+JSON", "GRPC"].map((binding) => ({ binding, version })));
const atMount = ["1.0", "0.3"].map((version) => ({ binding: "JSONRPC", version, mount: "/a2a" }));
await run([
  ...lanes.flatMap((lane) => {
    const scenarios = Object.entries(lane.version === "1.0" ? { ...both, ...only10 } : both);
    return scenarios.map(([name, scenario]) => [`${lane.binding} ${lane.version}/${name}`, () => scenario(lane)]);
  }),
  ...atMount.flatMap((lane) =>
    Object.entries(mounted).map(([name, scenario]) => [
      `${lane.binding} ${lane.version} at ${lane.mount}/${name}`,
      () => scenario(lane),
    ]),
  ),
]);
