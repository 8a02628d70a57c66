// Server of the official JavaScript SDK 0.3.x: `node server03.mjs` prints its URL. Its agent does what server1.mjs's does.
//
// At `/grpc` is a card with its gRPC endpoint alone.

import { randomUUID } from "node:crypto";
import {
  DefaultExecutionEventBusManager,
  DefaultPushNotificationSender,
  DefaultRequestHandler,
  InMemoryPushNotificationStore,
  InMemoryTaskStore,
} from "a2a-js-0.3/server";
import { agentCardHandler, jsonRpcHandler, restHandler } from "a2a-js-0.3/server/express";
import { A2AService, grpcService } from "a2a-js-0.3/server/grpc";
import { serve, Slow, writeDown } from "./listening.mjs";

const part = (text) => ({ kind: "text", text });
const said = (text, ids) => ({ kind: "message", messageId: randomUUID(), role: "agent", parts: [part(text)], ...ids });

class Agent {
  #slow = new Slow();

  execute = async ({ userMessage, taskId, contextId, task }, bus) => {
    const ids = { taskId, contextId };
    const text = userMessage.parts.find((each) => each.kind === "text")?.text ?? "";
    writeDown(text);
    const [word, ...rest] = text.split(" ");
    if (word === "direct") {
      bus.publish(said(rest.join(" "), { contextId }));
      bus.finished();
      return;
    }
    const timestamp = new Date().toISOString();
    const status = (state, final, message) => ({
      kind: "status-update",
      ...ids,
      status: { state, message, timestamp },
      final,
    });
    const artifact = (artifactId, parts, append = false) => ({
      kind: "artifact-update",
      ...ids,
      artifact: { artifactId, name: artifactId, parts },
      append,
      lastChunk: false,
    });
    if (!task) {
      bus.publish({
        kind: "task",
        id: taskId,
        contextId,
        status: { state: "submitted", timestamp },
        history: [userMessage],
      });
    }
    bus.publish(status("working", false));
    let end = status("completed", true);
    switch (task ? "answer" : word) {
      case "answer":
        bus.publish(artifact("answer", [part(`Booked: ${text}`)]));
        break;
      case "count":
        for (let n = 0; n < Number(rest[0]); n++) bus.publish(artifact("count", [part(`${n} `)], n > 0));
        break;
      case "ask":
        end = status("input-required", true, said("Which city?", ids));
        break;
      case "fail":
        end = status("failed", true, said("It broke", ids));
        break;
      case "slow":
        await this.#slow.run(taskId, (n) => bus.publish(artifact("slow", [part(".")], n > 0)));
        end = status("canceled", true);
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
  const card = {
    name: "Official JavaScript 0.3",
    description: "An agent of the official JavaScript SDK",
    version: "0.3.14",
    protocolVersion: "0.3.0",
    url: `${url}/rpc`,
    preferredTransport: "JSONRPC",
    additionalInterfaces: [
      { transport: "JSONRPC", url: `${url}/rpc` },
      { transport: "HTTP+JSON", url: `${url}/rest` },
    ],
    capabilities: { streaming: true, pushNotifications: true },
    supportsAuthenticatedExtendedCard: true,
    defaultInputModes: ["text/plain"],
    defaultOutputModes: ["text/plain"],
    skills: [{ id: "do", name: "Do", description: "Does what the first word says", tags: ["test"] }],
  };
  const webhooks = new InMemoryPushNotificationStore();
  const requestHandler = new DefaultRequestHandler(
    card,
    new InMemoryTaskStore(),
    new Agent(),
    new DefaultExecutionEventBusManager(),
    webhooks,
    new DefaultPushNotificationSender(webhooks),
    { ...card, description: "For those who have said who they are" },
  );
  const options = { requestHandler, userBuilder: known };
  app.use("/.well-known/agent-card.json", agentCardHandler({ agentCardProvider: requestHandler }));
  const named = { ...card, url: place, preferredTransport: "GRPC", additionalInterfaces: undefined };
  app.use("/grpc/.well-known/agent-card.json", agentCardHandler({ agentCardProvider: async () => named }));
  grpc.addService(A2AService, grpcService({ requestHandler, userBuilder: known }));
  app.use("/rpc", jsonRpcHandler(options));
  app.use("/rest", restHandler(options));
});
