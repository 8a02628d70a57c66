// Names the agent in the metadata of each call over gRPC: 0.3 has no tenant.

import { InterceptingCall } from "@grpc/grpc-js";

/** Options of a call that name the agent, if there is one to name. */
export function naming(agent) {
  const interceptor = (options, nextCall) =>
    new InterceptingCall(nextCall(options), {
      start(metadata, listener, next) {
        metadata.set("x-dragoman-agent", agent);
        next(metadata, listener);
      },
    });
  return agent ? { interceptors: [interceptor] } : {};
}
