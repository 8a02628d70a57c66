"""The messages of A2A 1.0 in protobuf: a table of names, numbers and types, which are those of the wire."""

from typing import TYPE_CHECKING

from dragoman.dialects.protobuf.schema import load

PACKAGE = "lf.a2a.v1"

TABLE = """
enum TaskState
  TASK_STATE_UNSPECIFIED 0, TASK_STATE_SUBMITTED 1, TASK_STATE_WORKING 2, TASK_STATE_COMPLETED 3
  TASK_STATE_FAILED 4, TASK_STATE_CANCELED 5, TASK_STATE_INPUT_REQUIRED 6, TASK_STATE_REJECTED 7
  TASK_STATE_AUTH_REQUIRED 8
enum Role
  ROLE_UNSPECIFIED 0, ROLE_USER 1, ROLE_AGENT 2
SendMessageConfiguration
  1 accepted_output_modes: repeated string
  2 task_push_notification_config: TaskPushNotificationConfig
  3 history_length: optional int32
  4 return_immediately: bool
Task
  1 id: string
  2 context_id: string
  3 status: TaskStatus
  4 artifacts: repeated Artifact
  5 history: repeated Message
  6 metadata: google.protobuf.Struct
TaskStatus
  1 state: TaskState
  2 message: Message
  3 timestamp: google.protobuf.Timestamp
Part
  1 text: string in content
  2 raw: bytes in content
  3 url: string in content
  4 data: google.protobuf.Value in content
  5 metadata: google.protobuf.Struct
  6 filename: string
  7 media_type: string
Message
  1 message_id: string
  2 context_id: string
  3 task_id: string
  4 role: Role
  5 parts: repeated Part
  6 metadata: google.protobuf.Struct
  7 extensions: repeated string
  8 reference_task_ids: repeated string
Artifact
  1 artifact_id: string
  2 name: string
  3 description: string
  4 parts: repeated Part
  5 metadata: google.protobuf.Struct
  6 extensions: repeated string
TaskStatusUpdateEvent
  1 task_id: string
  2 context_id: string
  3 status: TaskStatus
  4 metadata: google.protobuf.Struct
TaskArtifactUpdateEvent
  1 task_id: string
  2 context_id: string
  3 artifact: Artifact
  4 append: bool
  5 last_chunk: bool
  6 metadata: google.protobuf.Struct
AuthenticationInfo
  1 scheme: string
  2 credentials: string
AgentInterface
  1 url: string
  2 protocol_binding: string
  3 tenant: string
  4 protocol_version: string
AgentCard
  1 name: string
  2 description: string
  3 supported_interfaces: repeated AgentInterface
  4 provider: AgentProvider
  5 version: string
  6 documentation_url: optional string
  7 capabilities: AgentCapabilities
  8 security_schemes: map SecurityScheme
  9 security_requirements: repeated SecurityRequirement
  10 default_input_modes: repeated string
  11 default_output_modes: repeated string
  12 skills: repeated AgentSkill
  13 signatures: repeated AgentCardSignature
  14 icon_url: optional string
AgentProvider
  1 url: string
  2 organization: string
AgentCapabilities
  1 streaming: optional bool
  2 push_notifications: optional bool
  3 extensions: repeated AgentExtension
  4 extended_agent_card: optional bool
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
  8 security_requirements: repeated SecurityRequirement
AgentCardSignature
  1 protected: string
  2 signature: string
  3 header: google.protobuf.Struct
TaskPushNotificationConfig
  1 tenant: string
  2 id: string
  3 task_id: string
  4 url: string
  5 token: string
  6 authentication: AuthenticationInfo
StringList
  1 list: repeated string
SecurityRequirement
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
  5 device_code: DeviceCodeOAuthFlow in flow
AuthorizationCodeOAuthFlow
  1 authorization_url: string
  2 token_url: string
  3 refresh_url: string
  4 scopes: map string
  5 pkce_required: bool
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
DeviceCodeOAuthFlow
  1 device_authorization_url: string
  2 token_url: string
  3 refresh_url: string
  4 scopes: map string
SendMessageRequest
  1 tenant: string
  2 message: Message
  3 configuration: SendMessageConfiguration
  4 metadata: google.protobuf.Struct
GetTaskRequest
  1 tenant: string
  2 id: string
  3 history_length: optional int32
ListTasksRequest
  1 tenant: string
  2 context_id: string
  3 status: TaskState
  4 page_size: optional int32
  5 page_token: string
  6 history_length: optional int32
  7 status_timestamp_after: google.protobuf.Timestamp
  8 include_artifacts: optional bool
ListTasksResponse
  1 tasks: repeated Task
  2 next_page_token: string
  3 page_size: int32
  4 total_size: int32
CancelTaskRequest
  1 tenant: string
  2 id: string
  3 metadata: google.protobuf.Struct
GetTaskPushNotificationConfigRequest
  1 tenant: string
  2 task_id: string
  3 id: string
DeleteTaskPushNotificationConfigRequest
  1 tenant: string
  2 task_id: string
  3 id: string
SubscribeToTaskRequest
  1 tenant: string
  2 id: string
ListTaskPushNotificationConfigsRequest
  4 tenant: string
  1 task_id: string
  2 page_size: int32
  3 page_token: string
GetExtendedAgentCardRequest
  1 tenant: string
SendMessageResponse
  1 task: Task in payload
  2 message: Message in payload
StreamResponse
  1 task: Task in payload
  2 message: Message in payload
  3 status_update: TaskStatusUpdateEvent in payload
  4 artifact_update: TaskArtifactUpdateEvent in payload
ListTaskPushNotificationConfigsResponse
  1 configs: repeated TaskPushNotificationConfig
  2 next_page_token: string
rpc SendMessage: SendMessageRequest -> SendMessageResponse
rpc SendStreamingMessage: SendMessageRequest -> stream StreamResponse
rpc GetTask: GetTaskRequest -> Task
rpc ListTasks: ListTasksRequest -> ListTasksResponse
rpc CancelTask: CancelTaskRequest -> Task
rpc SubscribeToTask: SubscribeToTaskRequest -> stream StreamResponse
rpc CreateTaskPushNotificationConfig: TaskPushNotificationConfig -> TaskPushNotificationConfig
rpc GetTaskPushNotificationConfig: GetTaskPushNotificationConfigRequest -> TaskPushNotificationConfig
rpc ListTaskPushNotificationConfigs: ListTaskPushNotificationConfigsRequest -> ListTaskPushNotificationConfigsResponse
rpc GetExtendedAgentCard: GetExtendedAgentCardRequest -> AgentCard
rpc DeleteTaskPushNotificationConfig: DeleteTaskPushNotificationConfigRequest -> google.protobuf.Empty
"""
"""See `load`. The official file says more, such as paths of HTTP; nothing of that changes a byte of a message."""

if TYPE_CHECKING:
    from a2a.types import a2a_pb2 as pb
else:
    pb = load("a2a.proto", PACKAGE, TABLE)

__all__ = ["pb"]
