"""The objects of A2A 1.0 in protobuf: the forms of the model as the messages of the same names.

Invariant: an object that is written and read again is equal. An object that another agent left incomplete is read with
what it lacks: an id that depends on its content alone, the role of the agent, a state that has not ended.
"""

from dragoman.dialects.client.objects import derive_id
from dragoman.dialects.protobuf.fields import EnumForm, map_fields
from dragoman.dialects.v1.protobuf.messages import pb
from dragoman.model.message import Artifact, Message, Part, Role
from dragoman.model.task import Task, TaskState, TaskStatus
from dragoman.model.updates import ArtifactUpdate, StatusUpdate

ROLES = EnumForm({role: pb.Role.Value(role) for role in Role}, Role.AGENT)
STATES = EnumForm({state: pb.TaskState.Value(state) for state in TaskState}, TaskState.UNSPECIFIED)


def _message_id(given: pb.Message) -> str:
    return derive_id("msg", given.SerializeToString(deterministic=True))


PART = map_fields(Part, pb.Part, assumes=["text"], cleans=["text"], keeps_empty=True)
MESSAGE = map_fields(
    Message, pb.Message, forms={"parts": PART}, enums={"role": ROLES}, fallbacks={"message_id": _message_id}
)
ARTIFACT = map_fields(Artifact, pb.Artifact, forms={"parts": PART})
STATUS = map_fields(TaskStatus, pb.TaskStatus, forms={"message": MESSAGE}, enums={"state": STATES})
TASK = map_fields(Task, pb.Task, forms={"status": STATUS, "artifacts": ARTIFACT, "history": MESSAGE})
STATUS_UPDATE = map_fields(StatusUpdate, pb.TaskStatusUpdateEvent, forms={"status": STATUS})
ARTIFACT_UPDATE = map_fields(ArtifactUpdate, pb.TaskArtifactUpdateEvent, forms={"artifact": ARTIFACT})
