// Server of the official JavaScript SDK 1.x: `node server1.mjs` prints its URL.
//
// At `/` a card with everything over HTTP, at `/old` one with the endpoints of its compatibility mode alone. At `/grpc`
// and `/grpc-old` are the same for gRPC, which has a port of its own. The agent does what all the servers here do: the
// first word of the text says it.

import { randomUUID } from "node:crypto";
import { AgentCard, Role, TaskState } from "a2a-js-1";
import { LegacyA2AService, legacyGrpcService } from "a2a-js-1/compat/v0_3/server/grpc";
import {
  AgentEvent,
  DefaultExecutionEventBusManager,
  DefaultPushNotificationSender,
  DefaultRequestHandler,
  InMemoryPushNotificationStore,
  InMemoryTaskStore,
} from "a2a-js-1/server";
import { agentCardHandler, jsonRpcHandler, restHandler } from "a2a-js-1/server/express";
import { A2AService, grpcService } from "a2a-js-1/server/grpc";
import { serve, Slow, writeDown } from "./listening.mjs";

const part = (text) => ({ content: { $case: "text", value: text }, filename: "", mediaType: "", metadata: undefined });
const said = (text, ids) => ({
  messageId: randomUUID(),
  role: Role.ROLE_AGENT,
  parts: [part(text)],
  extensions: [],
  referenceTaskIds: [],
  metadata: undefined,
  taskId: "",
  ...ids,
});

class Agent {
  #slow = new Slow();

  execute = async ({ userMessage, taskId, contextId, task }, bus) => {
    const ids = { taskId, contextId };
    const text = userMessage.parts.find((each) => each.content?.$case === "text")?.content.value ?? "";
    writeDown(text);
    const [word, ...rest] = text.split(" ");
    if (word === "direct") {
      bus.publish(AgentEvent.message(said(rest.join(" "), { contextId })));
      bus.finished();
      return;
    }
    const status = (state, message) =>
      AgentEvent.statusUpdate({
        ...ids,
        status: { state, message, timestamp: new Date().toISOString() },
        metadata: undefined,
      });
    const artifact = (artifactId, parts, append = false) =>
      AgentEvent.artifactUpdate({
        ...ids,
        artifact: { artifactId, name: artifactId, description: "", parts, extensions: [], metadata: undefined },
        append,
        lastChunk: false,
        metadata: undefined,
      });
    const submitted = {
      id: taskId,
      contextId,
      status: { state: TaskState.TASK_STATE_SUBMITTED, message: undefined, timestamp: new Date().toISOString() },
      history: [userMessage],
      artifacts: [],
      metadata: undefined,
    };
    bus.publish(AgentEvent.task(task ?? submitted));
    bus.publish(status(TaskState.TASK_STATE_WORKING));
    let end = status(TaskState.TASK_STATE_COMPLETED);
    switch (task ? "answer" : word) {
      case "answer":
        bus.publish(artifact("answer", [part(`Booked: ${text}`)]));
        break;
      case "count":
        for (let n = 0; n < Number(rest[0]); n++) bus.publish(artifact("count", [part(`${n} `)], n > 0));
        break;
      case "ask":
        end = status(TaskState.TASK_STATE_INPUT_REQUIRED, said("Which city?", ids));
        break;
      case "fail":
        end = status(TaskState.TASK_STATE_FAILED, said("It broke", ids));
        break;
      case "slow":
        await this.#slow.run(taskId, (n) => bus.publish(artifact("slow", [part(".")], n > 0)));
        end = status(TaskState.TASK_STATE_CANCELED);
        break;
      default:
        bus.publish(artifact("echo", userMessage.parts));
    }
    bus.publish(end);
    bus.finished();
  };

  cancelTask = async (taskId) => this.#slow.stop(taskId);
}

const known = async () => ({ isAuthenticated: true, userName: "peer" });

serve((app, url, grpc, place) => {
  const bindings = { JSONRPC: `${url}/rpc`, "HTTP+JSON": `${url}/rest` };
  const interfaces = ["1.0", "0.3"].flatMap((protocolVersion) =>
    Object.entries(bindings).map(([protocolBinding, at]) => ({ protocolBinding, url: at, protocolVersion })),
  );
  const card = AgentCard.fromJSON({
    name: "Official JavaScript 1.x",
    description: "An agent of the official JavaScript SDK",
    version: "1.3.0",
    supportedInterfaces: interfaces,
    capabilities: { streaming: true, pushNotifications: true, extendedAgentCard: true },
    defaultInputModes: ["text/plain"],
    defaultOutputModes: ["text/plain"],
    skills: [{ id: "do", name: "Do", description: "Does what the first word says", tags: ["test"] }],
  });
  const old = { ...card, supportedInterfaces: card.supportedInterfaces.slice(2) };
  const overGrpc = ["1.0", "0.3"].map((protocolVersion) => ({
    ...card.supportedInterfaces[0],
    protocolBinding: "GRPC",
    url: place,
    protocolVersion,
  }));
  const webhooks = new InMemoryPushNotificationStore();
  const requestHandler = new DefaultRequestHandler(
    { ...card, supportedInterfaces: [...card.supportedInterfaces, ...overGrpc] }, // the versions that it answers
    new InMemoryTaskStore(),
    new Agent(),
    new DefaultExecutionEventBusManager(),
    webhooks,
    new DefaultPushNotificationSender(webhooks),
    { ...card, description: "For those who have said who they are" },
  );
  const options = { requestHandler, userBuilder: known, legacyCompat: { enabled: true } };
  app.use("/.well-known/agent-card.json", agentCardHandler({ agentCardProvider: async () => card }));
  app.use("/old/.well-known/agent-card.json", agentCardHandler({ agentCardProvider: async () => old }));
  for (const [path, endpoint] of [["/grpc", overGrpc[0]], ["/grpc-old", overGrpc[1]]]) {
    const named = { ...card, supportedInterfaces: [endpoint] };
    app.use(`${path}/.well-known/agent-card.json`, agentCardHandler({ agentCardProvider: async () => named }));
  }
  grpc.addService(A2AService, grpcService({ requestHandler, userBuilder: known }));
  grpc.addService(LegacyA2AService, legacyGrpcService({ requestHandler, userBuilder: known }));
  app.use("/rpc", jsonRpcHandler(options));
  app.use("/rest", restHandler(options));
});
