"""The provider of a model, and a request to it, as spans of generative AI tell them.

Invariant: an endpoint whose host is unknown counts as OpenAI's, whose API it speaks: the provider names the form of the
telemetry, and `server.address` the host.
"""

from urllib.parse import urlsplit

from dragoman.config import Model
from dragoman.telemetry.genai import ModelCall

PROVIDERS = (
    ("openai.azure.com", "azure.ai.openai"),
    ("services.ai.azure.com", "azure.ai.inference"),
    ("anthropic.com", "anthropic"),
    ("generativelanguage.googleapis.com", "gcp.gemini"),
    ("aiplatform.googleapis.com", "gcp.vertex_ai"),
    ("amazonaws.com", "aws.bedrock"),
    ("mistral.ai", "mistral_ai"),
    ("groq.com", "groq"),
    ("deepseek.com", "deepseek"),
    ("cohere.com", "cohere"),
    ("cohere.ai", "cohere"),
    ("perplexity.ai", "perplexity"),
    ("moonshot.ai", "moonshot_ai"),
    ("moonshot.cn", "moonshot_ai"),
    ("x.ai", "x_ai"),
    ("cloud.ibm.com", "ibm.watsonx.ai"),
)
"""The well-known values of `gen_ai.provider.name`, by the domains of their endpoints."""

_PORTS = {"http": 80, "https": 443}


def provider_of(url: str) -> str:
    """The provider of the model behind a URL."""
    host = urlsplit(url).hostname or ""
    for domain, name in PROVIDERS:
        if host == domain or host.endswith((f".{domain}", f"-{domain}")):  # us-central1-aiplatform.googleapis.com
            return name
    return "openai"


def chat_request(model: Model) -> ModelCall:
    """The requests for answers of a model, which differ in their messages alone."""
    parts = urlsplit(model.url)
    return ModelCall(
        model=model.model,
        provider=provider_of(model.url),
        address=parts.hostname or "",
        port=parts.port or _PORTS.get(parts.scheme, 443),
        json_wanted=model.schema is not None,
        temperature=model.temperature,
        top_p=model.top_p,
        max_tokens=model.max_tokens,
        seed=model.seed,
        frequency_penalty=model.frequency_penalty,
        presence_penalty=model.presence_penalty,
        reasoning=model.reasoning_effort,
        stop=model.stop,
    )
