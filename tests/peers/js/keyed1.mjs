// How the official JavaScript SDK 1.3.0 reads the cards of a server that asks for a key: `node keyed1.mjs BASE_URL KEY`.
//
// Prints one JSON line for each card: where it is from, its security schemes, and what it requires.

import { ClientFactory, DefaultAgentCardResolver, JsonRpcTransportFactory, RestTransportFactory } from "a2a-js-1/client";

const [base, key] = process.argv.slice(2);
const mount = `${base}/agents/who/`;

function report(name, card) {
  const schemes = Object.entries(card.securitySchemes ?? {}).map(([each, { scheme }]) => [
    each,
    scheme?.$case === "apiKeySecurityScheme" ? scheme.value.name : "",
  ]);
  const required = (card.securityRequirements ?? []).map((each) => Object.keys(each.schemes).sort());
  console.log(JSON.stringify({ card: name, schemes: Object.fromEntries(schemes), required }));
}

function keyed(url, init = {}) {
  const headers = new Headers(init.headers);
  headers.set("x-api-key", key);
  return fetch(url, { ...init, headers });
}

report("well-known", await new DefaultAgentCardResolver().resolve(mount));
for (const version of ["1.0", "0.3"]) {
  const options = { fetchImpl: keyed, legacyCompat: { enabled: version === "0.3" } };
  for (const binding of ["JSONRPC", "HTTP+JSON"]) {
    const card = await new DefaultAgentCardResolver().resolve(mount);
    card.supportedInterfaces = card.supportedInterfaces.filter(
      (each) => each.protocolBinding === binding && each.protocolVersion === version,
    );
    const transports = [new JsonRpcTransportFactory(options), new RestTransportFactory(options)];
    const client = await new ClientFactory({ transports }).createFromAgentCard(card);
    report(`extended ${binding} ${version}`, await client.getAgentCard());
  }
}
