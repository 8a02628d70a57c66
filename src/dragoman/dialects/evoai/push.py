"""Calls webhooks registered in Evo AI's dialect with the bare task."""

import msgspec

from dragoman.dialects import push
from dragoman.dialects.api import PushForm, Stands, Told
from dragoman.dialects.evoai.encode import task
from dragoman.dialects.evoai.webhooks import API_KEY, api_key
from dragoman.model.operations import PushConfig
from dragoman.model.task import TaskHead


def encode(head: TaskHead, told: Told, stands: Stands) -> bytes:
    """Encode the current task, as in the answer to `message/send`."""
    return msgspec.json.encode(task(stands(), None, dated=False))


def authorization(config: PushConfig) -> push.Headers:
    """Build the headers of 1.0; an API key goes into its own header."""
    if config.scheme != API_KEY or config.credentials is None:
        return push.official(config)
    token = [] if config.token is None else [(push.TOKEN, config.token)]
    return [api_key(config.credentials), *token]


FORM = PushForm(
    content_type="application/json",
    encode=encode,
    authorization=authorization,
    signature=push.standard_signature,
    whole=True,
    https_only=True,
)
