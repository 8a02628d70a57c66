"""The schemas of the answers of A2A: 1.0, 0.3 over JSON-RPC, and 0.3 over HTTP+JSON.

Sources: `a2a.proto` of 1.0 (package lf.a2a.v1) with its REQUIRED fields, the JSON schema of 0.3.0, and `a2a.proto` of
0.3.0 (package a2a.v1). Tests compare the first with the official package. A contextId that lacks is named by the check
`message-context`, so it is optional here.
"""

from dragoman.doctor.schema import Schema, make_schema

_STATES = ("submitted", "working", "completed", "failed", "canceled", "input-required", "rejected", "auth-required")
_PROTO_STATES = {state: f"TASK_STATE_{state.upper().replace('-', '_')}" for state in _STATES}
_OLD_STATES = {**_PROTO_STATES, "cancelled": "TASK_STATE_CANCELED", "TASK_STATE_CANCELLED": "TASK_STATE_CANCELED"}
_OLD_ROLES = {"agent": "ROLE_AGENT", "user": "ROLE_USER"}

V1 = make_schema(
    """
    SendMessageResponse: ^task:Task ^message:Message
    StreamResponse: ^task:Task ^message:Message ^statusUpdate:TaskStatusUpdateEvent \
        ^artifactUpdate:TaskArtifactUpdateEvent
    Task: id! contextId status!:TaskStatus artifacts:[]Artifact history:[]Message metadata:struct
    TaskStatus: state!:TaskState message:Message timestamp:time
    Message: messageId! contextId taskId role!:Role parts!:[]Part metadata:struct extensions:[]text \
        referenceTaskIds:[]text
    Part: ^text ^raw:bytes ^url ^data:value metadata:struct filename mediaType
    Artifact: artifactId! name description parts!:[]Part metadata:struct extensions:[]text
    TaskStatusUpdateEvent: taskId! contextId status!:TaskStatus metadata:struct
    TaskArtifactUpdateEvent: taskId! contextId artifact!:Artifact append:bool lastChunk:bool metadata:struct
    ListTasksResponse: tasks+:[]Task nextPageToken+ pageSize+:int32 totalSize+:int32
    TaskPushNotificationConfig: tenant id taskId url! token authentication:AuthenticationInfo
    AuthenticationInfo: scheme! credentials
    """,
    {"TaskState": " ".join(_PROTO_STATES.values()), "Role": "ROLE_USER ROLE_AGENT"},
    other="0.3",
    old_members={"kind": "", "final": "", "file": "raw or url", "mimeType": "mediaType"},
    old_values=_OLD_STATES | _OLD_ROLES,
    zoned=True,
)

V03 = make_schema(
    """
    Task: kind!:=task id! contextId status!:TaskStatus artifacts:[]Artifact history:[]Message metadata:struct
    TaskStatus: state!:TaskState message:Message timestamp:time
    Message: kind!:=message messageId! role!:Role parts+:[]Part contextId taskId metadata:struct \
        extensions:[]text referenceTaskIds:[]text
    Part: kind!:PartKind ^text ^file:File ^data:struct metadata:struct
    File: ^bytes:bytes ^uri name mimeType
    Artifact: artifactId! name description parts+:[]Part metadata:struct extensions:[]text
    TaskStatusUpdateEvent: kind!:=status-update taskId! contextId status!:TaskStatus final+:bool metadata:struct
    TaskArtifactUpdateEvent: kind!:=artifact-update taskId! contextId artifact!:Artifact append:bool \
        lastChunk:bool metadata:struct
    TaskPushNotificationConfig: taskId! pushNotificationConfig!:PushNotificationConfig
    PushNotificationConfig: id url! token authentication:PushNotificationAuthenticationInfo
    PushNotificationAuthenticationInfo: schemes!:[]text credentials
    """,
    {"TaskState": " ".join((*_STATES, "unknown")), "Role": "user agent", "PartKind": "text file data"},
    other="1.0",
    old_members={"raw": "file.bytes", "url": "file.uri", "mediaType": "file.mimeType", "filename": "file.name"},
    old_values={new: old for old, new in (_PROTO_STATES | _OLD_ROLES).items()},
    zoned=False,
)

V03_HTTP = make_schema(
    """
    SendMessageResponse: ^task:Task ^message:Message ^msg:Message
    StreamResponse: ^task:Task ^message:Message ^msg:Message ^statusUpdate:TaskStatusUpdateEvent \
        ^artifactUpdate:TaskArtifactUpdateEvent
    Task: id! contextId status!:TaskStatus artifacts:[]Artifact history:[]Message metadata:struct
    TaskStatus: state!:TaskState message:Message update:Message timestamp:time
    Message: messageId! contextId taskId role!:Role content+:[]Part metadata:struct extensions:[]text
    Part: ^text ^file:File ^data:Data metadata:struct
    File: ^fileWithUri ^fileWithBytes:bytes mimeType name
    Data: data+:struct
    Artifact: artifactId! name description parts!:[]Part metadata:struct extensions:[]text
    TaskStatusUpdateEvent: taskId! contextId status!:TaskStatus final:bool metadata:struct
    TaskArtifactUpdateEvent: taskId! contextId artifact!:Artifact append:bool lastChunk:bool metadata:struct
    TaskPushNotificationConfig: name! pushNotificationConfig!:PushNotificationConfig
    PushNotificationConfig: id url! token authentication:AuthenticationInfo
    AuthenticationInfo: schemes:[]text credentials
    """,
    {
        "TaskState": f"{' '.join(_PROTO_STATES.values())} TASK_STATE_CANCELLED",
        "Role": "ROLE_USER ROLE_AGENT",
    },
    other="1.0",
    old_members={"raw": "file", "url": "file", "mediaType": "mimeType"},
    old_values={},
    zoned=True,
)

SCHEMAS: dict[tuple[str, str], Schema] = {
    ("1.0", "JSONRPC"): V1,
    ("1.0", "HTTP+JSON"): V1,
    ("0.3", "JSONRPC"): V03,
    ("0.3", "HTTP+JSON"): V03_HTTP,
}
"""The schema of each official version over each binding; over gRPC the decoder is the schema."""

V03_EVENTS = {
    "task": "Task",
    "message": "Message",
    "status-update": "TaskStatusUpdateEvent",
    "artifact-update": "TaskArtifactUpdateEvent",
}
"""The shapes of 0.3 over JSON-RPC by their `kind`."""
