"""Calls webhooks registered in 0.3, each time with the whole task (A2A 0.3 §9.5)."""

import msgspec

from dragoman.dialects import push
from dragoman.dialects.api import PushForm, Stands, Told
from dragoman.dialects.v03.encode import task
from dragoman.model.task import TaskHead


def encode(head: TaskHead, told: Told, stands: Stands) -> bytes:
    """Encode the current task, whatever the subject: both official servers do so, over either binding."""
    return msgspec.json.encode(task(stands(), None))


FORM = PushForm(
    content_type="application/json",
    encode=encode,
    authorization=push.official,
    signature=push.standard_signature,
    whole=True,
)
