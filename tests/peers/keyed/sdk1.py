"""How the official Python SDK 1.3.0 reads the cards of a server that asks for a key: `python sdk1.py BASE_URL KEY`.

Prints one JSON line for each card: where it is from, its security schemes, and what it requires.
"""

import asyncio
import json
import sys
from typing import Any

import httpx
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import AgentCard, AgentInterface, GetExtendedAgentCardRequest
from a2a.utils.signing import create_signature_verifier
from google.protobuf.json_format import MessageToDict
from jwt.api_jwk import PyJWK


def report(name: str, card: AgentCard) -> None:
    read = MessageToDict(card)
    schemes = read.get("securitySchemes", {})
    shown = {each: scheme.get("apiKeySecurityScheme", {}).get("name", "") for each, scheme in schemes.items()}
    required = [sorted(each["schemes"]) for each in read.get("securityRequirements", [])]
    print(json.dumps({"card": name, "schemes": shown, "required": required}))


async def main(base_url: str, key: str) -> None:
    mount = f"{base_url}/agents/who"
    async with httpx.AsyncClient(timeout=60) as http:
        keys = (await http.get(f"{base_url}/.well-known/jwks.json")).json()["keys"]

        def key_of(kid: str | None, _: str | None) -> PyJWK:
            return PyJWK(next(each for each in keys if each["kid"] == kid))

        verify = create_signature_verifier(key_of, ["ES256"])
        for named in ("", "1.0"):
            headers: dict[str, Any] = {"headers": {"A2A-Version": named}} if named else {}
            card = await A2ACardResolver(http, mount).get_agent_card(http_kwargs=headers, signature_verifier=verify)
            report(f"well-known {named}".strip(), card)
    for version in ("1.0", "0.3"):
        for binding in ("JSONRPC", "HTTP+JSON"):
            http = httpx.AsyncClient(timeout=60, headers={"x-api-key": key})
            public = await A2ACardResolver(http, mount).get_agent_card()
            here = [
                each
                for each in public.supported_interfaces
                if (each.protocol_binding, each.protocol_version) == (binding, version)
            ]
            del public.supported_interfaces[:]
            public.supported_interfaces.append(AgentInterface(**{f.name: v for f, v in here[0].ListFields()}))
            client = ClientFactory(ClientConfig(httpx_client=http, supported_protocol_bindings=[binding])).create(
                public
            )
            report(f"extended {binding} {version}", await client.get_extended_agent_card(GetExtendedAgentCardRequest()))
            await http.aclose()


asyncio.run(main(*sys.argv[1:]))
