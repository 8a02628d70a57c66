// How the official JavaScript SDK 0.3.14 reads the cards of a server that asks for a key: `node keyed03.mjs BASE_URL KEY`.
//
// Prints one JSON line for each card: where it is from, its security schemes, and what it requires.

import {
  ClientFactory,
  ClientFactoryOptions,
  DefaultAgentCardResolver,
  JsonRpcTransportFactory,
  RestTransportFactory,
} from "a2a-js-0.3/client";

const [base, key] = process.argv.slice(2);
const mount = `${base}/agents/who/`;

function report(name, card) {
  const schemes = Object.entries(card.securitySchemes ?? {}).map(([each, scheme]) => [
    each,
    scheme.type === "apiKey" && scheme.in === "header" ? scheme.name : "",
  ]);
  const required = (card.security ?? []).map((each) => Object.keys(each).sort());
  console.log(JSON.stringify({ card: name, schemes: Object.fromEntries(schemes), required }));
}

function keyed(url, init = {}) {
  const headers = new Headers(init.headers);
  headers.set("x-api-key", key);
  return fetch(url, { ...init, headers });
}

const resolver = new DefaultAgentCardResolver();
report("well-known", await resolver.resolve(mount));
for (const binding of ["JSONRPC", "HTTP+JSON"]) {
  const transports = [new JsonRpcTransportFactory({ fetchImpl: keyed }), new RestTransportFactory({ fetchImpl: keyed })];
  const options = ClientFactoryOptions.createFrom(ClientFactoryOptions.default, {
    transports,
    preferredTransports: [binding],
  });
  const client = await new ClientFactory(options).createFromAgentCard(await resolver.resolve(mount));
  report(`extended ${binding}`, await client.getAgentCard());
}
