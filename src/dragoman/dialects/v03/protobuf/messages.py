"""The messages of A2A 0.3 in protobuf: a table of names, numbers and types, which are those of the wire."""

from typing import TYPE_CHECKING

from dragoman.dialects.protobuf.schema import load

PACKAGE = "a2a.v1"

TABLE = """
enum TaskState
  TASK_STATE_UNSPECIFIED 0, TASK_STATE_SUBMITTED 1, TASK_STATE_WORKING 2, TASK_STATE_COMPLETED 3
  TASK_STATE_FAILED 4, TASK_STATE_CANCELLED 5, TASK_STATE_INPUT_REQUIRED 6, TASK_STATE_REJECTED 7
  TASK_STATE_AUTH_REQUIRED 8
enum Role
  ROLE_UNSPECIFIED 0, ROLE_USER 1, ROLE_AGENT 2
SendMessageConfiguration
  1 accepted_output_modes: repeated string
  2 push_notification: PushNotificationConfig
  3 history_length: int32
  4 blocking: bool
Task
  1 id: string
  2 context_id: string
  3 status: TaskStatus
  4 artifacts: repeated Artifact
  5 history: repeated Message
  6 metadata: google.protobuf.Struct
TaskStatus
  1 state: TaskState
  2 update: Message as message
  3 timestamp: google.protobuf.Timestamp
Part
  1 text: string in part
  2 file: FilePart in part
  3 data: DataPart in part
  4 metadata: google.protobuf.Struct
FilePart
  1 file_with_uri: string in file
  2 file_with_bytes: bytes in file
  3 mime_type: string
  4 name: string
DataPart
  1 data: google.protobuf.Struct
Message
  1 message_id: string
  2 context_id: string
  3 task_id: string
  4 role: Role
  5 content: repeated Part
  6 metadata: google.protobuf.Struct
  7 extensions: repeated string
Artifact
  1 artifact_id: string
  3 name: string
  4 description: string
  5 parts: repeated Part
  6 metadata: google.protobuf.Struct
  7 extensions: repeated string
TaskStatusUpdateEvent
  1 task_id: string
  2 context_id: string
  3 status: TaskStatus
  4 final: bool
  5 metadata: google.protobuf.Struct
TaskArtifactUpdateEvent
  1 task_id: string
  2 context_id: string
  3 artifact: Artifact
  4 append: bool
  5 last_chunk: bool
  6 metadata: google.protobuf.Struct
PushNotificationConfig
  1 id: string
  2 url: string
  3 token: string
  4 authentication: AuthenticationInfo
AuthenticationInfo
  1 schemes: repeated string
  2 credentials: string
AgentInterface
  1 url: string
  2 transport: string
AgentCard
  16 protocol_version: string
  1 name: string
  2 description: string
  3 url: string
  14 preferred_transport: string
  15 additional_interfaces: repeated AgentInterface
  4 provider: AgentProvider
  5 version: string
  6 documentation_url: string
  7 capabilities: AgentCapabilities
  8 security_schemes: map SecurityScheme
  9 security: repeated Security
  10 default_input_modes: repeated string
  11 default_output_modes: repeated string
  12 skills: repeated AgentSkill
  13 supports_authenticated_extended_card: bool
  17 signatures: repeated AgentCardSignature
  18 icon_url: string
AgentProvider
  1 url: string
  2 organization: string
AgentCapabilities
  1 streaming: bool
  2 push_notifications: bool
  3 extensions: repeated AgentExtension
AgentExtension
  1 uri: string
  2 description: string
  3 required: bool
  4 params: google.protobuf.Struct
AgentSkill
  1 id: string
  2 name: string
  3 description: string
  4 tags: repeated string
  5 examples: repeated string
  6 input_modes: repeated string
  7 output_modes: repeated string
  8 security: repeated Security
AgentCardSignature
  1 protected: string
  2 signature: string
  3 header: google.protobuf.Struct
TaskPushNotificationConfig
  1 name: string
  2 push_notification_config: PushNotificationConfig
StringList
  1 list: repeated string
Security
  1 schemes: map StringList
SecurityScheme
  1 api_key_security_scheme: APIKeySecurityScheme in scheme
  2 http_auth_security_scheme: HTTPAuthSecurityScheme in scheme
  3 oauth2_security_scheme: OAuth2SecurityScheme in scheme
  4 open_id_connect_security_scheme: OpenIdConnectSecurityScheme in scheme
  5 mtls_security_scheme: MutualTlsSecurityScheme in scheme
APIKeySecurityScheme
  1 description: string
  2 location: string
  3 name: string
HTTPAuthSecurityScheme
  1 description: string
  2 scheme: string
  3 bearer_format: string
OAuth2SecurityScheme
  1 description: string
  2 flows: OAuthFlows
  3 oauth2_metadata_url: string
OpenIdConnectSecurityScheme
  1 description: string
  2 open_id_connect_url: string
MutualTlsSecurityScheme
  1 description: string
OAuthFlows
  1 authorization_code: AuthorizationCodeOAuthFlow in flow
  2 client_credentials: ClientCredentialsOAuthFlow in flow
  3 implicit: ImplicitOAuthFlow in flow
  4 password: PasswordOAuthFlow in flow
AuthorizationCodeOAuthFlow
  1 authorization_url: string
  2 token_url: string
  3 refresh_url: string
  4 scopes: map string
ClientCredentialsOAuthFlow
  1 token_url: string
  2 refresh_url: string
  3 scopes: map string
ImplicitOAuthFlow
  1 authorization_url: string
  2 refresh_url: string
  3 scopes: map string
PasswordOAuthFlow
  1 token_url: string
  2 refresh_url: string
  3 scopes: map string
SendMessageRequest
  1 request: Message as message
  2 configuration: SendMessageConfiguration
  3 metadata: google.protobuf.Struct
GetTaskRequest
  1 name: string
  2 history_length: int32
CancelTaskRequest
  1 name: string
GetTaskPushNotificationConfigRequest
  1 name: string
DeleteTaskPushNotificationConfigRequest
  1 name: string
CreateTaskPushNotificationConfigRequest
  1 parent: string
  2 config_id: string
  3 config: TaskPushNotificationConfig
TaskSubscriptionRequest
  1 name: string
ListTaskPushNotificationConfigRequest
  1 parent: string
  2 page_size: int32
  3 page_token: string
GetAgentCardRequest
SendMessageResponse
  1 task: Task in payload
  2 msg: Message in payload as message
StreamResponse
  1 task: Task in payload
  2 msg: Message in payload as message
  3 status_update: TaskStatusUpdateEvent in payload
  4 artifact_update: TaskArtifactUpdateEvent in payload
ListTaskPushNotificationConfigResponse
  1 configs: repeated TaskPushNotificationConfig
  2 next_page_token: string
rpc SendMessage: SendMessageRequest -> SendMessageResponse
rpc SendStreamingMessage: SendMessageRequest -> stream StreamResponse
rpc GetTask: GetTaskRequest -> Task
rpc CancelTask: CancelTaskRequest -> Task
rpc TaskSubscription: TaskSubscriptionRequest -> stream StreamResponse
rpc CreateTaskPushNotificationConfig: CreateTaskPushNotificationConfigRequest -> TaskPushNotificationConfig
rpc GetTaskPushNotificationConfig: GetTaskPushNotificationConfigRequest -> TaskPushNotificationConfig
rpc ListTaskPushNotificationConfig: ListTaskPushNotificationConfigRequest -> ListTaskPushNotificationConfigResponse
rpc GetAgentCard: GetAgentCardRequest -> AgentCard
rpc DeleteTaskPushNotificationConfig: DeleteTaskPushNotificationConfigRequest -> google.protobuf.Empty
"""
"""See `load`. The official file says more, such as paths of HTTP; nothing of that changes a byte of a message."""

if TYPE_CHECKING:
    from a2a.compat.v0_3 import a2a_v0_3_pb2 as pb
else:
    pb = load("a2a_v0_3.proto", PACKAGE, TABLE)

__all__ = ["pb"]
