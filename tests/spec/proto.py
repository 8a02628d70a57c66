"""The schemas: A2A 1.0, A2A 0.3 over JSON-RPC, and A2A 0.3's proto over HTTP+JSON.

Sources: `a2a.proto` of 1.0 (package lf.a2a.v1), the JSON schema of 0.3.0, `a2a.proto` of 0.3.0 (package a2a.v1).
"""

from tests.spec.schema import schema

V1 = schema(
    """
    SendMessageResponse: ^task:Task ^message:Message
    StreamResponse: ^task:Task ^message:Message ^statusUpdate:StatusUpdate ^artifactUpdate:ArtifactUpdate
    Task: id! contextId! status!:TaskStatus artifacts:[]Artifact history:[]Message metadata:struct
    TaskStatus: state!:TaskState message:Message timestamp!:time
    Message: messageId! contextId taskId role!:Role parts!:[]Part metadata:struct extensions:[]string \
        referenceTaskIds:[]string
    Part: ^text ^raw:bytes ^url ^data:value metadata:struct filename mediaType
    Artifact: artifactId! name description parts!:[]Part metadata:struct extensions:[]string
    StatusUpdate: taskId! contextId! status!:TaskStatus metadata:struct
    ArtifactUpdate: taskId! contextId! artifact!:Artifact append:bool lastChunk:bool metadata:struct
    ListTasksResponse: tasks+:[]Task nextPageToken+ pageSize+:int32 totalSize+:int32
    TaskPushNotificationConfig: tenant id! taskId! url! token authentication:AuthenticationInfo
    AuthenticationInfo: scheme! credentials
    PushConfigs: configs:[]TaskPushNotificationConfig nextPageToken
    Empty:
    AgentCard: name! description! supportedInterfaces!:[]AgentInterface provider:AgentProvider version! \
        documentationUrl capabilities!:AgentCapabilities securitySchemes:struct securityRequirements:[]struct \
        defaultInputModes!:[]string defaultOutputModes!:[]string skills!:[]AgentSkill signatures:[]struct \
        iconUrl
    AgentInterface: url! protocolBinding! tenant protocolVersion!
    AgentProvider: url! organization!
    AgentCapabilities: streaming:bool pushNotifications:bool extensions:[]AgentExtension extendedAgentCard:bool
    AgentExtension: uri! description required:bool params:struct
    AgentSkill: id! name! description! tags+:[]string examples:[]string inputModes:[]string \
        outputModes:[]string securityRequirements:[]struct
    RpcError: code+:int32 message! data!:[]value
    HttpError: error!:Status
    Status: code+:int32 status! message! details!:[]value
    """,
    {
        "TaskState": (
            "TASK_STATE_SUBMITTED TASK_STATE_WORKING TASK_STATE_COMPLETED TASK_STATE_FAILED TASK_STATE_CANCELED "
            "TASK_STATE_INPUT_REQUIRED TASK_STATE_REJECTED TASK_STATE_AUTH_REQUIRED"
        ),
        "Role": "ROLE_USER ROLE_AGENT",
    },
)
"""A2A 1.0. The context is required where the proto leaves it open, as §3.4.1 wants it in every answer."""

V03 = schema(
    """
    Task: kind!:=task id! contextId! status!:TaskStatus artifacts:[]Artifact history:[]Message metadata:struct
    TaskStatus: state!:TaskState message:Message timestamp!:time
    Message: kind!:=message messageId! role!:Role parts+:[]Part contextId taskId metadata:struct \
        extensions:[]string referenceTaskIds:[]string
    Part: kind!:PartKind ^text ^file:File ^data:struct metadata:struct
    File: ^bytes:bytes ^uri name mimeType
    Artifact: artifactId! name description parts+:[]Part metadata:struct extensions:[]string
    StatusUpdate: kind!:=status-update taskId! contextId! status!:TaskStatus final+:bool metadata:struct
    ArtifactUpdate: kind!:=artifact-update taskId! contextId! artifact!:Artifact append:bool lastChunk:bool \
        metadata:struct
    ListTasksResponse: tasks+:[]Task nextPageToken+ pageSize+:int32 totalSize+:int32
    TaskPushNotificationConfig: taskId! pushNotificationConfig!:PushNotificationConfig
    PushNotificationConfig: id! url! token authentication:Authentication
    Authentication: schemes!:[]string credentials
    RpcError: code+:int32 message! data!:struct
    """,
    {
        "TaskState": "submitted working completed failed canceled input-required rejected auth-required",
        "Role": "user agent",
        "PartKind": "text file data",
    },
)
"""A2A 0.3 over JSON-RPC: every object with its `kind`."""

V03_PROTO = schema(
    """
    SendMessageResponse: ^task:Task ^message:Message
    StreamResponse: ^task:Task ^message:Message ^statusUpdate:StatusUpdate ^artifactUpdate:ArtifactUpdate
    Task: id! contextId! status!:TaskStatus artifacts:[]Artifact history:[]Message metadata:struct
    TaskStatus: state!:TaskState message:Message timestamp!:time
    Message: messageId! contextId taskId role!:Role content!:[]Part metadata:struct extensions:[]string
    Part: ^text ^file:File ^data:Data metadata:struct
    File: ^fileWithUri ^fileWithBytes:bytes mimeType name
    Data: data+:struct
    Artifact: artifactId! name description parts!:[]Part metadata:struct extensions:[]string
    StatusUpdate: taskId! contextId! status!:TaskStatus final+:bool metadata:struct
    ArtifactUpdate: taskId! contextId! artifact!:Artifact append:bool lastChunk:bool metadata:struct
    ListTasksResponse: tasks+:[]Task nextPageToken+ pageSize+:int32 totalSize+:int32
    TaskPushNotificationConfig: name! pushNotificationConfig!:PushNotificationConfig
    PushNotificationConfig: id! url! token authentication:Authentication
    Authentication: schemes!:[]string credentials
    PushConfigs: configs:[]TaskPushNotificationConfig nextPageToken
    Empty:
    RestError: type! code+:int32 message! data!:struct
    """,
    {
        "TaskState": (
            "TASK_STATE_SUBMITTED TASK_STATE_WORKING TASK_STATE_COMPLETED TASK_STATE_FAILED TASK_STATE_CANCELLED "
            "TASK_STATE_INPUT_REQUIRED TASK_STATE_REJECTED TASK_STATE_AUTH_REQUIRED"
        ),
        "Role": "ROLE_USER ROLE_AGENT",
    },
)
"""A2A 0.3 over HTTP+JSON: protobuf JSON, `content` for the parts of a message, `CANCELLED` with two L."""
