"""How the official Python SDK 0.3.26 reads the cards of a server that asks for a key: `python sdk03.py BASE_URL KEY`.

Prints one JSON line for each card: where it is from, its security schemes, and what it requires.
"""

import asyncio
import json
import sys

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import AgentCard, APIKeySecurityScheme, TransportProtocol
from a2a.utils.signing import create_signature_verifier
from jwt.api_jwk import PyJWK


def report(name: str, card: AgentCard) -> None:
    schemes = {each: scheme.root for each, scheme in (card.security_schemes or {}).items()}
    shown = {each: scheme.name if isinstance(scheme, APIKeySecurityScheme) else "" for each, scheme in schemes.items()}
    required = [sorted(each) for each in card.security or []]
    print(json.dumps({"card": name, "schemes": shown, "required": required}))


async def main(base_url: str, key: str) -> None:
    mount = f"{base_url}/agents/who"
    async with httpx.AsyncClient(timeout=60) as http:
        keys = (await http.get(f"{base_url}/.well-known/jwks.json")).json()["keys"]

        def key_of(kid: str | None, _: str | None) -> PyJWK:
            return PyJWK(next(each for each in keys if each["kid"] == kid))

        verify = create_signature_verifier(key_of, ["ES256"])
        for named in ("", "0.3"):
            headers = {"headers": {"A2A-Version": named}} if named else {}
            card = await A2ACardResolver(http, mount).get_agent_card(http_kwargs=headers, signature_verifier=verify)
            report(f"well-known {named}".strip(), card)
    for binding in (TransportProtocol.jsonrpc, TransportProtocol.http_json):
        async with httpx.AsyncClient(timeout=60, headers={"x-api-key": key}) as http:
            public = await A2ACardResolver(http, mount).get_agent_card()
            client = ClientFactory(ClientConfig(httpx_client=http, supported_transports=[binding])).create(public)
            report(f"extended {binding.value}", await client.get_card())


asyncio.run(main(*sys.argv[1:]))
