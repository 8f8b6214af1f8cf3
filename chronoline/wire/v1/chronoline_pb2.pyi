from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class TopicSettings(_message.Message):
    __slots__ = ("buckets", "window_ms", "default_lease_ms", "max_attempts", "max_lateness_ms", "dedupe_ms", "dead_letters", "largest_body_bytes", "target", "most_per_s", "most_in_flight", "spread_ms", "group_waiting", "group_creates_per_s")
    BUCKETS_FIELD_NUMBER: _ClassVar[int]
    WINDOW_MS_FIELD_NUMBER: _ClassVar[int]
    DEFAULT_LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    MAX_LATENESS_MS_FIELD_NUMBER: _ClassVar[int]
    DEDUPE_MS_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTERS_FIELD_NUMBER: _ClassVar[int]
    LARGEST_BODY_BYTES_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    MOST_PER_S_FIELD_NUMBER: _ClassVar[int]
    MOST_IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    SPREAD_MS_FIELD_NUMBER: _ClassVar[int]
    GROUP_WAITING_FIELD_NUMBER: _ClassVar[int]
    GROUP_CREATES_PER_S_FIELD_NUMBER: _ClassVar[int]
    buckets: int
    window_ms: int
    default_lease_ms: int
    max_attempts: int
    max_lateness_ms: int
    dedupe_ms: int
    dead_letters: bool
    largest_body_bytes: int
    target: str
    most_per_s: int
    most_in_flight: int
    spread_ms: int
    group_waiting: int
    group_creates_per_s: int
    def __init__(self, buckets: _Optional[int] = ..., window_ms: _Optional[int] = ..., default_lease_ms: _Optional[int] = ..., max_attempts: _Optional[int] = ..., max_lateness_ms: _Optional[int] = ..., dedupe_ms: _Optional[int] = ..., dead_letters: _Optional[bool] = ..., largest_body_bytes: _Optional[int] = ..., target: _Optional[str] = ..., most_per_s: _Optional[int] = ..., most_in_flight: _Optional[int] = ..., spread_ms: _Optional[int] = ..., group_waiting: _Optional[int] = ..., group_creates_per_s: _Optional[int] = ...) -> None: ...

class Topic(_message.Message):
    __slots__ = ("uid", "name", "settings", "revision", "paused_since_ms", "paused_by", "pause_reason")
    UID_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    PAUSED_SINCE_MS_FIELD_NUMBER: _ClassVar[int]
    PAUSED_BY_FIELD_NUMBER: _ClassVar[int]
    PAUSE_REASON_FIELD_NUMBER: _ClassVar[int]
    uid: int
    name: str
    settings: TopicSettings
    revision: int
    paused_since_ms: int
    paused_by: str
    pause_reason: str
    def __init__(self, uid: _Optional[int] = ..., name: _Optional[str] = ..., settings: _Optional[_Union[TopicSettings, _Mapping]] = ..., revision: _Optional[int] = ..., paused_since_ms: _Optional[int] = ..., paused_by: _Optional[str] = ..., pause_reason: _Optional[str] = ...) -> None: ...

class Topics(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedCompositeFieldContainer[Topic]
    def __init__(self, topics: _Optional[_Iterable[_Union[Topic, _Mapping]]] = ...) -> None: ...

class TopicRef(_message.Message):
    __slots__ = ("uid",)
    UID_FIELD_NUMBER: _ClassVar[int]
    uid: int
    def __init__(self, uid: _Optional[int] = ...) -> None: ...

class Dropped(_message.Message):
    __slots__ = ("dropped",)
    DROPPED_FIELD_NUMBER: _ClassVar[int]
    dropped: bool
    def __init__(self, dropped: _Optional[bool] = ...) -> None: ...

class GetTopicRequest(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class ListTopicsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class CreateTopicRequest(_message.Message):
    __slots__ = ("name", "settings", "if_missing")
    NAME_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    IF_MISSING_FIELD_NUMBER: _ClassVar[int]
    name: str
    settings: TopicSettings
    if_missing: bool
    def __init__(self, name: _Optional[str] = ..., settings: _Optional[_Union[TopicSettings, _Mapping]] = ..., if_missing: _Optional[bool] = ...) -> None: ...

class InfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class Broker(_message.Message):
    __slots__ = ("id", "version", "roles", "address", "rack", "health", "problems", "topics", "consumers", "messages_per_s", "load_percent", "clock_ahead_us", "notices")
    ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ROLES_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    HEALTH_FIELD_NUMBER: _ClassVar[int]
    PROBLEMS_FIELD_NUMBER: _ClassVar[int]
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_PER_S_FIELD_NUMBER: _ClassVar[int]
    LOAD_PERCENT_FIELD_NUMBER: _ClassVar[int]
    CLOCK_AHEAD_US_FIELD_NUMBER: _ClassVar[int]
    NOTICES_FIELD_NUMBER: _ClassVar[int]
    id: str
    version: str
    roles: _containers.RepeatedScalarFieldContainer[str]
    address: str
    rack: str
    health: str
    problems: _containers.RepeatedScalarFieldContainer[str]
    topics: int
    consumers: int
    messages_per_s: int
    load_percent: int
    clock_ahead_us: int
    notices: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, id: _Optional[str] = ..., version: _Optional[str] = ..., roles: _Optional[_Iterable[str]] = ..., address: _Optional[str] = ..., rack: _Optional[str] = ..., health: _Optional[str] = ..., problems: _Optional[_Iterable[str]] = ..., topics: _Optional[int] = ..., consumers: _Optional[int] = ..., messages_per_s: _Optional[int] = ..., load_percent: _Optional[int] = ..., clock_ahead_us: _Optional[int] = ..., notices: _Optional[_Iterable[str]] = ...) -> None: ...

class Buckets(_message.Message):
    __slots__ = ("start", "stop")
    START_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    start: int
    stop: int
    def __init__(self, start: _Optional[int] = ..., stop: _Optional[int] = ...) -> None: ...

class Subscriber(_message.Message):
    __slots__ = ("consumer", "topic_uid", "topic", "start_bucket", "stop_bucket", "busy", "broker", "rack", "own", "backups")
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    TOPIC_UID_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    START_BUCKET_FIELD_NUMBER: _ClassVar[int]
    STOP_BUCKET_FIELD_NUMBER: _ClassVar[int]
    BUSY_FIELD_NUMBER: _ClassVar[int]
    BROKER_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    OWN_FIELD_NUMBER: _ClassVar[int]
    BACKUPS_FIELD_NUMBER: _ClassVar[int]
    consumer: str
    topic_uid: int
    topic: str
    start_bucket: int
    stop_bucket: int
    busy: bool
    broker: str
    rack: str
    own: _containers.RepeatedCompositeFieldContainer[Buckets]
    backups: _containers.RepeatedCompositeFieldContainer[Buckets]
    def __init__(self, consumer: _Optional[str] = ..., topic_uid: _Optional[int] = ..., topic: _Optional[str] = ..., start_bucket: _Optional[int] = ..., stop_bucket: _Optional[int] = ..., busy: _Optional[bool] = ..., broker: _Optional[str] = ..., rack: _Optional[str] = ..., own: _Optional[_Iterable[_Union[Buckets, _Mapping]]] = ..., backups: _Optional[_Iterable[_Union[Buckets, _Mapping]]] = ...) -> None: ...

class Degradation(_message.Message):
    __slots__ = ("type", "reason")
    TYPE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    type: str
    reason: str
    def __init__(self, type: _Optional[str] = ..., reason: _Optional[str] = ...) -> None: ...

class Cluster(_message.Message):
    __slots__ = ("now_us", "brokers", "subscribers", "store_problem", "degradations", "answered_by", "coordination_problem")
    NOW_US_FIELD_NUMBER: _ClassVar[int]
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBERS_FIELD_NUMBER: _ClassVar[int]
    STORE_PROBLEM_FIELD_NUMBER: _ClassVar[int]
    DEGRADATIONS_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_BY_FIELD_NUMBER: _ClassVar[int]
    COORDINATION_PROBLEM_FIELD_NUMBER: _ClassVar[int]
    now_us: int
    brokers: _containers.RepeatedCompositeFieldContainer[Broker]
    subscribers: _containers.RepeatedCompositeFieldContainer[Subscriber]
    store_problem: str
    degradations: _containers.RepeatedCompositeFieldContainer[Degradation]
    answered_by: str
    coordination_problem: str
    def __init__(self, now_us: _Optional[int] = ..., brokers: _Optional[_Iterable[_Union[Broker, _Mapping]]] = ..., subscribers: _Optional[_Iterable[_Union[Subscriber, _Mapping]]] = ..., store_problem: _Optional[str] = ..., degradations: _Optional[_Iterable[_Union[Degradation, _Mapping]]] = ..., answered_by: _Optional[str] = ..., coordination_problem: _Optional[str] = ...) -> None: ...

class PreferRequest(_message.Message):
    __slots__ = ("topic_uid", "kind", "rack", "only_look")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[PreferRequest.Kind]
        KIND_CONSUMER: _ClassVar[PreferRequest.Kind]
        KIND_PRODUCER: _ClassVar[PreferRequest.Kind]
    KIND_UNSPECIFIED: PreferRequest.Kind
    KIND_CONSUMER: PreferRequest.Kind
    KIND_PRODUCER: PreferRequest.Kind
    TOPIC_UID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    ONLY_LOOK_FIELD_NUMBER: _ClassVar[int]
    topic_uid: int
    kind: PreferRequest.Kind
    rack: str
    only_look: bool
    def __init__(self, topic_uid: _Optional[int] = ..., kind: _Optional[_Union[PreferRequest.Kind, str]] = ..., rack: _Optional[str] = ..., only_look: _Optional[bool] = ...) -> None: ...

class PreferredBrokers(_message.Message):
    __slots__ = ("brokers", "answered_by")
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    ANSWERED_BY_FIELD_NUMBER: _ClassVar[int]
    brokers: _containers.RepeatedCompositeFieldContainer[Broker]
    answered_by: str
    def __init__(self, brokers: _Optional[_Iterable[_Union[Broker, _Mapping]]] = ..., answered_by: _Optional[str] = ...) -> None: ...

class Header(_message.Message):
    __slots__ = ("name", "value")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    name: str
    value: bytes
    def __init__(self, name: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...

class NewMessage(_message.Message):
    __slots__ = ("id", "due_ms", "delay_ms", "body", "key", "headers", "expires_ms")
    ID_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_MS_FIELD_NUMBER: _ClassVar[int]
    id: str
    due_ms: int
    delay_ms: int
    body: bytes
    key: bytes
    headers: _containers.RepeatedCompositeFieldContainer[Header]
    expires_ms: int
    def __init__(self, id: _Optional[str] = ..., due_ms: _Optional[int] = ..., delay_ms: _Optional[int] = ..., body: _Optional[bytes] = ..., key: _Optional[bytes] = ..., headers: _Optional[_Iterable[_Union[Header, _Mapping]]] = ..., expires_ms: _Optional[int] = ...) -> None: ...

class Message(_message.Message):
    __slots__ = ("id", "ts_ms", "due_ms", "bucket", "producer_group", "lock_consumer", "version", "attempts", "expires_ms", "key", "headers")
    ID_FIELD_NUMBER: _ClassVar[int]
    TS_MS_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    BUCKET_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_GROUP_FIELD_NUMBER: _ClassVar[int]
    LOCK_CONSUMER_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_MS_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    id: str
    ts_ms: int
    due_ms: int
    bucket: int
    producer_group: str
    lock_consumer: str
    version: int
    attempts: int
    expires_ms: int
    key: bytes
    headers: _containers.RepeatedCompositeFieldContainer[Header]
    def __init__(self, id: _Optional[str] = ..., ts_ms: _Optional[int] = ..., due_ms: _Optional[int] = ..., bucket: _Optional[int] = ..., producer_group: _Optional[str] = ..., lock_consumer: _Optional[str] = ..., version: _Optional[int] = ..., attempts: _Optional[int] = ..., expires_ms: _Optional[int] = ..., key: _Optional[bytes] = ..., headers: _Optional[_Iterable[_Union[Header, _Mapping]]] = ...) -> None: ...

class Delivery(_message.Message):
    __slots__ = ("id", "due_ms", "version", "until_ms", "attempts", "redelivered", "producer_group", "body", "key", "headers", "expires_ms")
    ID_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    REDELIVERED_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_GROUP_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_MS_FIELD_NUMBER: _ClassVar[int]
    id: str
    due_ms: int
    version: int
    until_ms: int
    attempts: int
    redelivered: bool
    producer_group: str
    body: bytes
    key: bytes
    headers: _containers.RepeatedCompositeFieldContainer[Header]
    expires_ms: int
    def __init__(self, id: _Optional[str] = ..., due_ms: _Optional[int] = ..., version: _Optional[int] = ..., until_ms: _Optional[int] = ..., attempts: _Optional[int] = ..., redelivered: _Optional[bool] = ..., producer_group: _Optional[str] = ..., body: _Optional[bytes] = ..., key: _Optional[bytes] = ..., headers: _Optional[_Iterable[_Union[Header, _Mapping]]] = ..., expires_ms: _Optional[int] = ...) -> None: ...

class Outcome(_message.Message):
    __slots__ = ("id", "refusal", "version", "detail", "unknown", "due_ms", "retry_after_ms", "warning")
    ID_FIELD_NUMBER: _ClassVar[int]
    REFUSAL_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    WARNING_FIELD_NUMBER: _ClassVar[int]
    id: str
    refusal: str
    version: int
    detail: str
    unknown: bool
    due_ms: int
    retry_after_ms: int
    warning: str
    def __init__(self, id: _Optional[str] = ..., refusal: _Optional[str] = ..., version: _Optional[int] = ..., detail: _Optional[str] = ..., unknown: _Optional[bool] = ..., due_ms: _Optional[int] = ..., retry_after_ms: _Optional[int] = ..., warning: _Optional[str] = ...) -> None: ...

class Outcomes(_message.Message):
    __slots__ = ("outcomes",)
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedCompositeFieldContainer[Outcome]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[Outcome, _Mapping]]] = ...) -> None: ...

class Failure(_message.Message):
    __slots__ = ("code", "message", "kind", "retry_after_ms", "brokers")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_MS_FIELD_NUMBER: _ClassVar[int]
    BROKERS_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    kind: str
    retry_after_ms: int
    brokers: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ..., kind: _Optional[str] = ..., retry_after_ms: _Optional[int] = ..., brokers: _Optional[_Iterable[str]] = ...) -> None: ...

class Stamp(_message.Message):
    __slots__ = ("now_us", "epoch")
    NOW_US_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    now_us: int
    epoch: int
    def __init__(self, now_us: _Optional[int] = ..., epoch: _Optional[int] = ...) -> None: ...

class Ping(_message.Message):
    __slots__ = ("client_us", "sent_us", "round_trip_us", "busy", "measured_us")
    CLIENT_US_FIELD_NUMBER: _ClassVar[int]
    SENT_US_FIELD_NUMBER: _ClassVar[int]
    ROUND_TRIP_US_FIELD_NUMBER: _ClassVar[int]
    BUSY_FIELD_NUMBER: _ClassVar[int]
    MEASURED_US_FIELD_NUMBER: _ClassVar[int]
    client_us: int
    sent_us: int
    round_trip_us: int
    busy: bool
    measured_us: int
    def __init__(self, client_us: _Optional[int] = ..., sent_us: _Optional[int] = ..., round_trip_us: _Optional[int] = ..., busy: _Optional[bool] = ..., measured_us: _Optional[int] = ...) -> None: ...

class Pong(_message.Message):
    __slots__ = ("sent_us", "drift_us", "drifting", "interval_ms")
    SENT_US_FIELD_NUMBER: _ClassVar[int]
    DRIFT_US_FIELD_NUMBER: _ClassVar[int]
    DRIFTING_FIELD_NUMBER: _ClassVar[int]
    INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    sent_us: int
    drift_us: int
    drifting: bool
    interval_ms: int
    def __init__(self, sent_us: _Optional[int] = ..., drift_us: _Optional[int] = ..., drifting: _Optional[bool] = ..., interval_ms: _Optional[int] = ...) -> None: ...

class Limits(_message.Message):
    __slots__ = ("frame_bytes", "batch", "credit", "ping_interval_ms", "ping_timeout_ms")
    FRAME_BYTES_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    PING_INTERVAL_MS_FIELD_NUMBER: _ClassVar[int]
    PING_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    frame_bytes: int
    batch: int
    credit: int
    ping_interval_ms: int
    ping_timeout_ms: int
    def __init__(self, frame_bytes: _Optional[int] = ..., batch: _Optional[int] = ..., credit: _Optional[int] = ..., ping_interval_ms: _Optional[int] = ..., ping_timeout_ms: _Optional[int] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("broker", "version", "name", "limits", "others")
    BROKER_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    LIMITS_FIELD_NUMBER: _ClassVar[int]
    OTHERS_FIELD_NUMBER: _ClassVar[int]
    broker: str
    version: str
    name: str
    limits: Limits
    others: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, broker: _Optional[str] = ..., version: _Optional[str] = ..., name: _Optional[str] = ..., limits: _Optional[_Union[Limits, _Mapping]] = ..., others: _Optional[_Iterable[str]] = ...) -> None: ...

class KnownBrokers(_message.Message):
    __slots__ = ("others",)
    OTHERS_FIELD_NUMBER: _ClassVar[int]
    others: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, others: _Optional[_Iterable[str]] = ...) -> None: ...

class MoveTo(_message.Message):
    __slots__ = ("reason", "address", "message")
    REASON_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    reason: str
    address: str
    message: str
    def __init__(self, reason: _Optional[str] = ..., address: _Optional[str] = ..., message: _Optional[str] = ...) -> None: ...

class GoAway(_message.Message):
    __slots__ = ("code", "message", "others")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    OTHERS_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    others: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ..., others: _Optional[_Iterable[str]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("name", "version", "instance", "rack")
    NAME_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    INSTANCE_FIELD_NUMBER: _ClassVar[int]
    RACK_FIELD_NUMBER: _ClassVar[int]
    name: str
    version: str
    instance: str
    rack: str
    def __init__(self, name: _Optional[str] = ..., version: _Optional[str] = ..., instance: _Optional[str] = ..., rack: _Optional[str] = ...) -> None: ...

class CreateBatch(_message.Message):
    __slots__ = ("topic_uid", "messages", "replace")
    TOPIC_UID_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    REPLACE_FIELD_NUMBER: _ClassVar[int]
    topic_uid: int
    messages: _containers.RepeatedCompositeFieldContainer[NewMessage]
    replace: bool
    def __init__(self, topic_uid: _Optional[int] = ..., messages: _Optional[_Iterable[_Union[NewMessage, _Mapping]]] = ..., replace: _Optional[bool] = ...) -> None: ...

class Move(_message.Message):
    __slots__ = ("id", "due_ms", "delay_ms", "expires_ms")
    ID_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_MS_FIELD_NUMBER: _ClassVar[int]
    id: str
    due_ms: int
    delay_ms: int
    expires_ms: int
    def __init__(self, id: _Optional[str] = ..., due_ms: _Optional[int] = ..., delay_ms: _Optional[int] = ..., expires_ms: _Optional[int] = ...) -> None: ...

class RescheduleBatch(_message.Message):
    __slots__ = ("topic_uid", "moves", "again")
    TOPIC_UID_FIELD_NUMBER: _ClassVar[int]
    MOVES_FIELD_NUMBER: _ClassVar[int]
    AGAIN_FIELD_NUMBER: _ClassVar[int]
    topic_uid: int
    moves: _containers.RepeatedCompositeFieldContainer[Move]
    again: bool
    def __init__(self, topic_uid: _Optional[int] = ..., moves: _Optional[_Iterable[_Union[Move, _Mapping]]] = ..., again: _Optional[bool] = ...) -> None: ...

class CancelBatch(_message.Message):
    __slots__ = ("topic_uid", "ids", "again")
    TOPIC_UID_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    AGAIN_FIELD_NUMBER: _ClassVar[int]
    topic_uid: int
    ids: _containers.RepeatedScalarFieldContainer[str]
    again: bool
    def __init__(self, topic_uid: _Optional[int] = ..., ids: _Optional[_Iterable[str]] = ..., again: _Optional[bool] = ...) -> None: ...

class ProducerFrame(_message.Message):
    __slots__ = ("seq", "hello", "ping", "create", "reschedule", "cancel", "more")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    PING_FIELD_NUMBER: _ClassVar[int]
    CREATE_FIELD_NUMBER: _ClassVar[int]
    RESCHEDULE_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    seq: int
    hello: Hello
    ping: Ping
    create: CreateBatch
    reschedule: RescheduleBatch
    cancel: CancelBatch
    more: _containers.RepeatedCompositeFieldContainer[ProducerFrame]
    def __init__(self, seq: _Optional[int] = ..., hello: _Optional[_Union[Hello, _Mapping]] = ..., ping: _Optional[_Union[Ping, _Mapping]] = ..., create: _Optional[_Union[CreateBatch, _Mapping]] = ..., reschedule: _Optional[_Union[RescheduleBatch, _Mapping]] = ..., cancel: _Optional[_Union[CancelBatch, _Mapping]] = ..., more: _Optional[_Iterable[_Union[ProducerFrame, _Mapping]]] = ...) -> None: ...

class ProducerReply(_message.Message):
    __slots__ = ("stamp", "seq", "welcome", "pong", "outcomes", "failure", "go_away", "move_to", "known_brokers", "more")
    STAMP_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    PONG_FIELD_NUMBER: _ClassVar[int]
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    GO_AWAY_FIELD_NUMBER: _ClassVar[int]
    MOVE_TO_FIELD_NUMBER: _ClassVar[int]
    KNOWN_BROKERS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    stamp: Stamp
    seq: int
    welcome: Welcome
    pong: Pong
    outcomes: Outcomes
    failure: Failure
    go_away: GoAway
    move_to: MoveTo
    known_brokers: KnownBrokers
    more: _containers.RepeatedCompositeFieldContainer[ProducerReply]
    def __init__(self, stamp: _Optional[_Union[Stamp, _Mapping]] = ..., seq: _Optional[int] = ..., welcome: _Optional[_Union[Welcome, _Mapping]] = ..., pong: _Optional[_Union[Pong, _Mapping]] = ..., outcomes: _Optional[_Union[Outcomes, _Mapping]] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ..., go_away: _Optional[_Union[GoAway, _Mapping]] = ..., move_to: _Optional[_Union[MoveTo, _Mapping]] = ..., known_brokers: _Optional[_Union[KnownBrokers, _Mapping]] = ..., more: _Optional[_Iterable[_Union[ProducerReply, _Mapping]]] = ...) -> None: ...

class LeaseRef(_message.Message):
    __slots__ = ("id", "version")
    ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    id: str
    version: int
    def __init__(self, id: _Optional[str] = ..., version: _Optional[int] = ...) -> None: ...

class HeldLease(_message.Message):
    __slots__ = ("id", "version", "extending")
    ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    EXTENDING_FIELD_NUMBER: _ClassVar[int]
    id: str
    version: int
    extending: bool
    def __init__(self, id: _Optional[str] = ..., version: _Optional[int] = ..., extending: _Optional[bool] = ...) -> None: ...

class Subscribe(_message.Message):
    __slots__ = ("topic_uid", "lease_ms", "credit", "holding", "unanswered", "returning")
    TOPIC_UID_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    HOLDING_FIELD_NUMBER: _ClassVar[int]
    UNANSWERED_FIELD_NUMBER: _ClassVar[int]
    RETURNING_FIELD_NUMBER: _ClassVar[int]
    topic_uid: int
    lease_ms: int
    credit: int
    holding: _containers.RepeatedCompositeFieldContainer[HeldLease]
    unanswered: int
    returning: bool
    def __init__(self, topic_uid: _Optional[int] = ..., lease_ms: _Optional[int] = ..., credit: _Optional[int] = ..., holding: _Optional[_Iterable[_Union[HeldLease, _Mapping]]] = ..., unanswered: _Optional[int] = ..., returning: _Optional[bool] = ...) -> None: ...

class KeptLease(_message.Message):
    __slots__ = ("id", "version", "until_ms")
    ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    id: str
    version: int
    until_ms: int
    def __init__(self, id: _Optional[str] = ..., version: _Optional[int] = ..., until_ms: _Optional[int] = ...) -> None: ...

class Subscribed(_message.Message):
    __slots__ = ("topic_uid", "lease_ms", "kept", "window_ms")
    TOPIC_UID_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    KEPT_FIELD_NUMBER: _ClassVar[int]
    WINDOW_MS_FIELD_NUMBER: _ClassVar[int]
    topic_uid: int
    lease_ms: int
    kept: _containers.RepeatedCompositeFieldContainer[KeptLease]
    window_ms: int
    def __init__(self, topic_uid: _Optional[int] = ..., lease_ms: _Optional[int] = ..., kept: _Optional[_Iterable[_Union[KeptLease, _Mapping]]] = ..., window_ms: _Optional[int] = ...) -> None: ...

class Unsubscribe(_message.Message):
    __slots__ = ("topic_uid",)
    TOPIC_UID_FIELD_NUMBER: _ClassVar[int]
    topic_uid: int
    def __init__(self, topic_uid: _Optional[int] = ...) -> None: ...

class Credit(_message.Message):
    __slots__ = ("topic_uid", "more")
    TOPIC_UID_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    topic_uid: int
    more: int
    def __init__(self, topic_uid: _Optional[int] = ..., more: _Optional[int] = ...) -> None: ...

class AckBatch(_message.Message):
    __slots__ = ("topic_uid", "leases", "again")
    TOPIC_UID_FIELD_NUMBER: _ClassVar[int]
    LEASES_FIELD_NUMBER: _ClassVar[int]
    AGAIN_FIELD_NUMBER: _ClassVar[int]
    topic_uid: int
    leases: _containers.RepeatedCompositeFieldContainer[LeaseRef]
    again: bool
    def __init__(self, topic_uid: _Optional[int] = ..., leases: _Optional[_Iterable[_Union[LeaseRef, _Mapping]]] = ..., again: _Optional[bool] = ...) -> None: ...

class LeaseMove(_message.Message):
    __slots__ = ("id", "version", "at_ms", "delay_ms", "reason")
    ID_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    id: str
    version: int
    at_ms: int
    delay_ms: int
    reason: str
    def __init__(self, id: _Optional[str] = ..., version: _Optional[int] = ..., at_ms: _Optional[int] = ..., delay_ms: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class MoveBatch(_message.Message):
    __slots__ = ("topic_uid", "kind", "moves", "again")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[MoveBatch.Kind]
        KIND_EXTEND: _ClassVar[MoveBatch.Kind]
        KIND_RELEASE: _ClassVar[MoveBatch.Kind]
        KIND_RETRY: _ClassVar[MoveBatch.Kind]
        KIND_BURY: _ClassVar[MoveBatch.Kind]
        KIND_UNRESERVE: _ClassVar[MoveBatch.Kind]
    KIND_UNSPECIFIED: MoveBatch.Kind
    KIND_EXTEND: MoveBatch.Kind
    KIND_RELEASE: MoveBatch.Kind
    KIND_RETRY: MoveBatch.Kind
    KIND_BURY: MoveBatch.Kind
    KIND_UNRESERVE: MoveBatch.Kind
    TOPIC_UID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    MOVES_FIELD_NUMBER: _ClassVar[int]
    AGAIN_FIELD_NUMBER: _ClassVar[int]
    topic_uid: int
    kind: MoveBatch.Kind
    moves: _containers.RepeatedCompositeFieldContainer[LeaseMove]
    again: bool
    def __init__(self, topic_uid: _Optional[int] = ..., kind: _Optional[_Union[MoveBatch.Kind, str]] = ..., moves: _Optional[_Iterable[_Union[LeaseMove, _Mapping]]] = ..., again: _Optional[bool] = ...) -> None: ...

class ConsumerFrame(_message.Message):
    __slots__ = ("seq", "hello", "ping", "subscribe", "unsubscribe", "credit", "ack", "move", "more")
    SEQ_FIELD_NUMBER: _ClassVar[int]
    HELLO_FIELD_NUMBER: _ClassVar[int]
    PING_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    UNSUBSCRIBE_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    ACK_FIELD_NUMBER: _ClassVar[int]
    MOVE_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    seq: int
    hello: Hello
    ping: Ping
    subscribe: Subscribe
    unsubscribe: Unsubscribe
    credit: Credit
    ack: AckBatch
    move: MoveBatch
    more: _containers.RepeatedCompositeFieldContainer[ConsumerFrame]
    def __init__(self, seq: _Optional[int] = ..., hello: _Optional[_Union[Hello, _Mapping]] = ..., ping: _Optional[_Union[Ping, _Mapping]] = ..., subscribe: _Optional[_Union[Subscribe, _Mapping]] = ..., unsubscribe: _Optional[_Union[Unsubscribe, _Mapping]] = ..., credit: _Optional[_Union[Credit, _Mapping]] = ..., ack: _Optional[_Union[AckBatch, _Mapping]] = ..., move: _Optional[_Union[MoveBatch, _Mapping]] = ..., more: _Optional[_Iterable[_Union[ConsumerFrame, _Mapping]]] = ...) -> None: ...

class Moved(_message.Message):
    __slots__ = ("outcomes", "at_ms")
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    AT_MS_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedCompositeFieldContainer[Outcome]
    at_ms: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[Outcome, _Mapping]]] = ..., at_ms: _Optional[_Iterable[int]] = ...) -> None: ...

class Push(_message.Message):
    __slots__ = ("topic_uid", "deliveries")
    TOPIC_UID_FIELD_NUMBER: _ClassVar[int]
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    topic_uid: int
    deliveries: _containers.RepeatedCompositeFieldContainer[Delivery]
    def __init__(self, topic_uid: _Optional[int] = ..., deliveries: _Optional[_Iterable[_Union[Delivery, _Mapping]]] = ...) -> None: ...

class Share(_message.Message):
    __slots__ = ("topic_uid", "start_bucket", "stop_bucket", "reason")
    TOPIC_UID_FIELD_NUMBER: _ClassVar[int]
    START_BUCKET_FIELD_NUMBER: _ClassVar[int]
    STOP_BUCKET_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    topic_uid: int
    start_bucket: int
    stop_bucket: int
    reason: str
    def __init__(self, topic_uid: _Optional[int] = ..., start_bucket: _Optional[int] = ..., stop_bucket: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class TopicEnded(_message.Message):
    __slots__ = ("topic_uid", "message")
    TOPIC_UID_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    topic_uid: int
    message: str
    def __init__(self, topic_uid: _Optional[int] = ..., message: _Optional[str] = ...) -> None: ...

class ConsumerReply(_message.Message):
    __slots__ = ("stamp", "seq", "welcome", "pong", "outcomes", "failure", "go_away", "subscribed", "push", "moved", "share", "topic_ended", "move_to", "known_brokers", "more")
    STAMP_FIELD_NUMBER: _ClassVar[int]
    SEQ_FIELD_NUMBER: _ClassVar[int]
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    PONG_FIELD_NUMBER: _ClassVar[int]
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    GO_AWAY_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBED_FIELD_NUMBER: _ClassVar[int]
    PUSH_FIELD_NUMBER: _ClassVar[int]
    MOVED_FIELD_NUMBER: _ClassVar[int]
    SHARE_FIELD_NUMBER: _ClassVar[int]
    TOPIC_ENDED_FIELD_NUMBER: _ClassVar[int]
    MOVE_TO_FIELD_NUMBER: _ClassVar[int]
    KNOWN_BROKERS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    stamp: Stamp
    seq: int
    welcome: Welcome
    pong: Pong
    outcomes: Outcomes
    failure: Failure
    go_away: GoAway
    subscribed: Subscribed
    push: Push
    moved: Moved
    share: Share
    topic_ended: TopicEnded
    move_to: MoveTo
    known_brokers: KnownBrokers
    more: _containers.RepeatedCompositeFieldContainer[ConsumerReply]
    def __init__(self, stamp: _Optional[_Union[Stamp, _Mapping]] = ..., seq: _Optional[int] = ..., welcome: _Optional[_Union[Welcome, _Mapping]] = ..., pong: _Optional[_Union[Pong, _Mapping]] = ..., outcomes: _Optional[_Union[Outcomes, _Mapping]] = ..., failure: _Optional[_Union[Failure, _Mapping]] = ..., go_away: _Optional[_Union[GoAway, _Mapping]] = ..., subscribed: _Optional[_Union[Subscribed, _Mapping]] = ..., push: _Optional[_Union[Push, _Mapping]] = ..., moved: _Optional[_Union[Moved, _Mapping]] = ..., share: _Optional[_Union[Share, _Mapping]] = ..., topic_ended: _Optional[_Union[TopicEnded, _Mapping]] = ..., move_to: _Optional[_Union[MoveTo, _Mapping]] = ..., known_brokers: _Optional[_Union[KnownBrokers, _Mapping]] = ..., more: _Optional[_Iterable[_Union[ConsumerReply, _Mapping]]] = ...) -> None: ...

class LookupRequest(_message.Message):
    __slots__ = ("topic_uid", "ids")
    TOPIC_UID_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    topic_uid: int
    ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topic_uid: _Optional[int] = ..., ids: _Optional[_Iterable[str]] = ...) -> None: ...

class Found(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[Message]
    def __init__(self, messages: _Optional[_Iterable[_Union[Message, _Mapping]]] = ...) -> None: ...

class BodiesRequest(_message.Message):
    __slots__ = ("topic_uid", "ids", "producer_group", "consumer")
    TOPIC_UID_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_GROUP_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    topic_uid: int
    ids: _containers.RepeatedScalarFieldContainer[str]
    producer_group: str
    consumer: str
    def __init__(self, topic_uid: _Optional[int] = ..., ids: _Optional[_Iterable[str]] = ..., producer_group: _Optional[str] = ..., consumer: _Optional[str] = ...) -> None: ...

class Body(_message.Message):
    __slots__ = ("id", "body")
    ID_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    id: str
    body: bytes
    def __init__(self, id: _Optional[str] = ..., body: _Optional[bytes] = ...) -> None: ...

class BodiesFound(_message.Message):
    __slots__ = ("found", "refused")
    FOUND_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    found: _containers.RepeatedCompositeFieldContainer[Body]
    refused: _containers.RepeatedCompositeFieldContainer[Outcome]
    def __init__(self, found: _Optional[_Iterable[_Union[Body, _Mapping]]] = ..., refused: _Optional[_Iterable[_Union[Outcome, _Mapping]]] = ...) -> None: ...

class CountRequest(_message.Message):
    __slots__ = ("topic_uid", "start_ms", "end_ms")
    TOPIC_UID_FIELD_NUMBER: _ClassVar[int]
    START_MS_FIELD_NUMBER: _ClassVar[int]
    END_MS_FIELD_NUMBER: _ClassVar[int]
    topic_uid: int
    start_ms: int
    end_ms: int
    def __init__(self, topic_uid: _Optional[int] = ..., start_ms: _Optional[int] = ..., end_ms: _Optional[int] = ...) -> None: ...

class Counts(_message.Message):
    __slots__ = ("available", "processing", "waiting")
    AVAILABLE_FIELD_NUMBER: _ClassVar[int]
    PROCESSING_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    available: int
    processing: int
    waiting: int
    def __init__(self, available: _Optional[int] = ..., processing: _Optional[int] = ..., waiting: _Optional[int] = ...) -> None: ...

class ForecastRequest(_message.Message):
    __slots__ = ("topic_uid", "start_ms", "end_ms", "step_ms")
    TOPIC_UID_FIELD_NUMBER: _ClassVar[int]
    START_MS_FIELD_NUMBER: _ClassVar[int]
    END_MS_FIELD_NUMBER: _ClassVar[int]
    STEP_MS_FIELD_NUMBER: _ClassVar[int]
    topic_uid: int
    start_ms: int
    end_ms: int
    step_ms: int
    def __init__(self, topic_uid: _Optional[int] = ..., start_ms: _Optional[int] = ..., end_ms: _Optional[int] = ..., step_ms: _Optional[int] = ...) -> None: ...

class ForecastStep(_message.Message):
    __slots__ = ("start_ms", "counts")
    START_MS_FIELD_NUMBER: _ClassVar[int]
    COUNTS_FIELD_NUMBER: _ClassVar[int]
    start_ms: int
    counts: Counts
    def __init__(self, start_ms: _Optional[int] = ..., counts: _Optional[_Union[Counts, _Mapping]] = ...) -> None: ...

class ForecastSteps(_message.Message):
    __slots__ = ("steps",)
    STEPS_FIELD_NUMBER: _ClassVar[int]
    steps: _containers.RepeatedCompositeFieldContainer[ForecastStep]
    def __init__(self, steps: _Optional[_Iterable[_Union[ForecastStep, _Mapping]]] = ...) -> None: ...

class DeadLetter(_message.Message):
    __slots__ = ("message", "reason", "died_ms")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DIED_MS_FIELD_NUMBER: _ClassVar[int]
    message: Message
    reason: str
    died_ms: int
    def __init__(self, message: _Optional[_Union[Message, _Mapping]] = ..., reason: _Optional[str] = ..., died_ms: _Optional[int] = ...) -> None: ...

class DeadLettersRequest(_message.Message):
    __slots__ = ("topic_uid", "limit", "after_id", "after_died_ms")
    TOPIC_UID_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    AFTER_ID_FIELD_NUMBER: _ClassVar[int]
    AFTER_DIED_MS_FIELD_NUMBER: _ClassVar[int]
    topic_uid: int
    limit: int
    after_id: str
    after_died_ms: int
    def __init__(self, topic_uid: _Optional[int] = ..., limit: _Optional[int] = ..., after_id: _Optional[str] = ..., after_died_ms: _Optional[int] = ...) -> None: ...

class DeadLetterPage(_message.Message):
    __slots__ = ("letters",)
    LETTERS_FIELD_NUMBER: _ClassVar[int]
    letters: _containers.RepeatedCompositeFieldContainer[DeadLetter]
    def __init__(self, letters: _Optional[_Iterable[_Union[DeadLetter, _Mapping]]] = ...) -> None: ...

class RedriveRequest(_message.Message):
    __slots__ = ("topic_uid", "ids", "due_ms", "delay_ms", "producer_group")
    TOPIC_UID_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_GROUP_FIELD_NUMBER: _ClassVar[int]
    topic_uid: int
    ids: _containers.RepeatedScalarFieldContainer[str]
    due_ms: int
    delay_ms: int
    producer_group: str
    def __init__(self, topic_uid: _Optional[int] = ..., ids: _Optional[_Iterable[str]] = ..., due_ms: _Optional[int] = ..., delay_ms: _Optional[int] = ..., producer_group: _Optional[str] = ...) -> None: ...

class DiscardRequest(_message.Message):
    __slots__ = ("topic_uid", "ids", "producer_group")
    TOPIC_UID_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_GROUP_FIELD_NUMBER: _ClassVar[int]
    topic_uid: int
    ids: _containers.RepeatedScalarFieldContainer[str]
    producer_group: str
    def __init__(self, topic_uid: _Optional[int] = ..., ids: _Optional[_Iterable[str]] = ..., producer_group: _Optional[str] = ...) -> None: ...

class PauseTopicRequest(_message.Message):
    __slots__ = ("uid", "reason")
    UID_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    uid: int
    reason: str
    def __init__(self, uid: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class ChangeTopicRequest(_message.Message):
    __slots__ = ("uid", "revision", "settings", "unset")
    UID_FIELD_NUMBER: _ClassVar[int]
    REVISION_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    UNSET_FIELD_NUMBER: _ClassVar[int]
    uid: int
    revision: int
    settings: TopicSettings
    unset: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, uid: _Optional[int] = ..., revision: _Optional[int] = ..., settings: _Optional[_Union[TopicSettings, _Mapping]] = ..., unset: _Optional[_Iterable[str]] = ...) -> None: ...

class Schedule(_message.Message):
    __slots__ = ("name", "topic_uid", "cron", "every_ms", "zone", "start_ms", "catch_up", "producer_group", "body", "key", "headers", "topic", "paused", "next_ms", "times_ms", "problem")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOPIC_UID_FIELD_NUMBER: _ClassVar[int]
    CRON_FIELD_NUMBER: _ClassVar[int]
    EVERY_MS_FIELD_NUMBER: _ClassVar[int]
    ZONE_FIELD_NUMBER: _ClassVar[int]
    START_MS_FIELD_NUMBER: _ClassVar[int]
    CATCH_UP_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_GROUP_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    NEXT_MS_FIELD_NUMBER: _ClassVar[int]
    TIMES_MS_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    name: str
    topic_uid: int
    cron: str
    every_ms: int
    zone: str
    start_ms: int
    catch_up: str
    producer_group: str
    body: bytes
    key: bytes
    headers: _containers.RepeatedCompositeFieldContainer[Header]
    topic: str
    paused: bool
    next_ms: int
    times_ms: _containers.RepeatedScalarFieldContainer[int]
    problem: str
    def __init__(self, name: _Optional[str] = ..., topic_uid: _Optional[int] = ..., cron: _Optional[str] = ..., every_ms: _Optional[int] = ..., zone: _Optional[str] = ..., start_ms: _Optional[int] = ..., catch_up: _Optional[str] = ..., producer_group: _Optional[str] = ..., body: _Optional[bytes] = ..., key: _Optional[bytes] = ..., headers: _Optional[_Iterable[_Union[Header, _Mapping]]] = ..., topic: _Optional[str] = ..., paused: _Optional[bool] = ..., next_ms: _Optional[int] = ..., times_ms: _Optional[_Iterable[int]] = ..., problem: _Optional[str] = ...) -> None: ...

class PutScheduleRequest(_message.Message):
    __slots__ = ("schedule", "replace", "dry_run", "times")
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    REPLACE_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    schedule: Schedule
    replace: bool
    dry_run: bool
    times: int
    def __init__(self, schedule: _Optional[_Union[Schedule, _Mapping]] = ..., replace: _Optional[bool] = ..., dry_run: _Optional[bool] = ..., times: _Optional[int] = ...) -> None: ...

class GetScheduleRequest(_message.Message):
    __slots__ = ("name", "times")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    name: str
    times: int
    def __init__(self, name: _Optional[str] = ..., times: _Optional[int] = ...) -> None: ...

class ListSchedulesRequest(_message.Message):
    __slots__ = ("topic_uid", "after", "limit")
    TOPIC_UID_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    topic_uid: int
    after: str
    limit: int
    def __init__(self, topic_uid: _Optional[int] = ..., after: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class SchedulePage(_message.Message):
    __slots__ = ("schedules",)
    SCHEDULES_FIELD_NUMBER: _ClassVar[int]
    schedules: _containers.RepeatedCompositeFieldContainer[Schedule]
    def __init__(self, schedules: _Optional[_Iterable[_Union[Schedule, _Mapping]]] = ...) -> None: ...

class ScheduleRef(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: str
    def __init__(self, name: _Optional[str] = ...) -> None: ...

class MessageFilter(_message.Message):
    __slots__ = ("producer_group", "consumer", "prefix", "start_ms", "end_ms", "statuses", "reason")
    PRODUCER_GROUP_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    START_MS_FIELD_NUMBER: _ClassVar[int]
    END_MS_FIELD_NUMBER: _ClassVar[int]
    STATUSES_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    producer_group: str
    consumer: str
    prefix: str
    start_ms: int
    end_ms: int
    statuses: _containers.RepeatedScalarFieldContainer[str]
    reason: str
    def __init__(self, producer_group: _Optional[str] = ..., consumer: _Optional[str] = ..., prefix: _Optional[str] = ..., start_ms: _Optional[int] = ..., end_ms: _Optional[int] = ..., statuses: _Optional[_Iterable[str]] = ..., reason: _Optional[str] = ...) -> None: ...

class ListRequest(_message.Message):
    __slots__ = ("topic_uid", "filter", "limit", "after")
    TOPIC_UID_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    topic_uid: int
    filter: MessageFilter
    limit: int
    after: str
    def __init__(self, topic_uid: _Optional[int] = ..., filter: _Optional[_Union[MessageFilter, _Mapping]] = ..., limit: _Optional[int] = ..., after: _Optional[str] = ...) -> None: ...

class MessagePage(_message.Message):
    __slots__ = ("messages", "next")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[Message]
    next: str
    def __init__(self, messages: _Optional[_Iterable[_Union[Message, _Mapping]]] = ..., next: _Optional[str] = ...) -> None: ...

class MessageState(_message.Message):
    __slots__ = ("id", "state", "message", "consumer", "until_ms", "died_ms", "reason", "producer_group")
    ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    DIED_MS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_GROUP_FIELD_NUMBER: _ClassVar[int]
    id: str
    state: str
    message: Message
    consumer: str
    until_ms: int
    died_ms: int
    reason: str
    producer_group: str
    def __init__(self, id: _Optional[str] = ..., state: _Optional[str] = ..., message: _Optional[_Union[Message, _Mapping]] = ..., consumer: _Optional[str] = ..., until_ms: _Optional[int] = ..., died_ms: _Optional[int] = ..., reason: _Optional[str] = ..., producer_group: _Optional[str] = ...) -> None: ...

class MessageStates(_message.Message):
    __slots__ = ("states",)
    STATES_FIELD_NUMBER: _ClassVar[int]
    states: _containers.RepeatedCompositeFieldContainer[MessageState]
    def __init__(self, states: _Optional[_Iterable[_Union[MessageState, _Mapping]]] = ...) -> None: ...

class ChangeMatchingRequest(_message.Message):
    __slots__ = ("topic_uid", "kind", "filter", "due_ms", "delay_ms", "dry_run", "after", "limit")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[ChangeMatchingRequest.Kind]
        KIND_CANCEL: _ClassVar[ChangeMatchingRequest.Kind]
        KIND_RESCHEDULE: _ClassVar[ChangeMatchingRequest.Kind]
        KIND_REDRIVE: _ClassVar[ChangeMatchingRequest.Kind]
        KIND_DISCARD: _ClassVar[ChangeMatchingRequest.Kind]
    KIND_UNSPECIFIED: ChangeMatchingRequest.Kind
    KIND_CANCEL: ChangeMatchingRequest.Kind
    KIND_RESCHEDULE: ChangeMatchingRequest.Kind
    KIND_REDRIVE: ChangeMatchingRequest.Kind
    KIND_DISCARD: ChangeMatchingRequest.Kind
    TOPIC_UID_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    FILTER_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    DRY_RUN_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    topic_uid: int
    kind: ChangeMatchingRequest.Kind
    filter: MessageFilter
    due_ms: int
    delay_ms: int
    dry_run: bool
    after: str
    limit: int
    def __init__(self, topic_uid: _Optional[int] = ..., kind: _Optional[_Union[ChangeMatchingRequest.Kind, str]] = ..., filter: _Optional[_Union[MessageFilter, _Mapping]] = ..., due_ms: _Optional[int] = ..., delay_ms: _Optional[int] = ..., dry_run: _Optional[bool] = ..., after: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class ChangedBatch(_message.Message):
    __slots__ = ("looked", "matched", "done", "refused", "sample", "next", "due_ms")
    class RefusedEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    LOOKED_FIELD_NUMBER: _ClassVar[int]
    MATCHED_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    SAMPLE_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    looked: int
    matched: int
    done: int
    refused: _containers.ScalarMap[str, int]
    sample: _containers.RepeatedScalarFieldContainer[str]
    next: str
    due_ms: int
    def __init__(self, looked: _Optional[int] = ..., matched: _Optional[int] = ..., done: _Optional[int] = ..., refused: _Optional[_Mapping[str, int]] = ..., sample: _Optional[_Iterable[str]] = ..., next: _Optional[str] = ..., due_ms: _Optional[int] = ...) -> None: ...

class SavedMessage(_message.Message):
    __slots__ = ("id", "due_ms", "expires_ms", "attempts", "producer_group", "key", "headers", "body", "reason", "died_ms")
    ID_FIELD_NUMBER: _ClassVar[int]
    DUE_MS_FIELD_NUMBER: _ClassVar[int]
    EXPIRES_MS_FIELD_NUMBER: _ClassVar[int]
    ATTEMPTS_FIELD_NUMBER: _ClassVar[int]
    PRODUCER_GROUP_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DIED_MS_FIELD_NUMBER: _ClassVar[int]
    id: str
    due_ms: int
    expires_ms: int
    attempts: int
    producer_group: str
    key: bytes
    headers: _containers.RepeatedCompositeFieldContainer[Header]
    body: bytes
    reason: str
    died_ms: int
    def __init__(self, id: _Optional[str] = ..., due_ms: _Optional[int] = ..., expires_ms: _Optional[int] = ..., attempts: _Optional[int] = ..., producer_group: _Optional[str] = ..., key: _Optional[bytes] = ..., headers: _Optional[_Iterable[_Union[Header, _Mapping]]] = ..., body: _Optional[bytes] = ..., reason: _Optional[str] = ..., died_ms: _Optional[int] = ...) -> None: ...

class ExportRequest(_message.Message):
    __slots__ = ("topic_uid", "dead_letters", "after", "limit")
    TOPIC_UID_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTERS_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    topic_uid: int
    dead_letters: bool
    after: str
    limit: int
    def __init__(self, topic_uid: _Optional[int] = ..., dead_letters: _Optional[bool] = ..., after: _Optional[str] = ..., limit: _Optional[int] = ...) -> None: ...

class ExportPage(_message.Message):
    __slots__ = ("messages", "next")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[SavedMessage]
    next: str
    def __init__(self, messages: _Optional[_Iterable[_Union[SavedMessage, _Mapping]]] = ..., next: _Optional[str] = ...) -> None: ...

class ImportRequest(_message.Message):
    __slots__ = ("topic_uid", "messages")
    TOPIC_UID_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    topic_uid: int
    messages: _containers.RepeatedCompositeFieldContainer[SavedMessage]
    def __init__(self, topic_uid: _Optional[int] = ..., messages: _Optional[_Iterable[_Union[SavedMessage, _Mapping]]] = ...) -> None: ...
