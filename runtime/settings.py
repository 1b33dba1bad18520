"""Settings of every process, from the environment (``LIGHTSTREAM_*``) or from code.

One flat model, so that ``lightstream up`` can hand all of it to its children through the environment.
"""

from __future__ import annotations

import difflib
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from platformdirs import user_cache_path
from pydantic import AfterValidator, Field, SecretStr, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from lightstream.schemas.assembly_rules import RewardMatchName, checked_credit
from lightstream.schemas.errors import SettingsError

ENVIRONMENT_PREFIX = "LIGHTSTREAM_"

SIMILARITY_MIN = 0.85
"""Least similarity of a misspelled name and the one that was meant (1: the same): one letter in seven may be wrong."""


FOR_EVER = "forever"
FIXED_TOPIC_SETTINGS = ("cleanup.policy", "message.timestamp.type")


def _checked_pattern(pattern: str | None) -> str | None:
    try:
        re.compile(pattern or "")
    except re.error as error:
        raise ValueError(f"it is no regular expression: {error}") from error
    return pattern


def _checked_brokers(number: int) -> int:
    if number == 2:  # the one between
        raise ValueError("two brokers stop where one fails, as one does: it must be 1 or 3")
    return number


def _checked_topic_config(text: str) -> str:
    for item in filter(None, map(str.strip, text.split(","))):
        name, found, _ = item.partition("=")
        topic, _, name = (part.strip() for part in name.rpartition(":"))
        if topic:
            from lightstream.schemas.topics import TOPICS  # with all records, which most settings do not need

            names = [one.name for one in TOPICS]
            if topic not in names:
                raise ValueError(f"there is no topic {topic!r}; there are {', '.join(names)}")
        if not found or not name:
            raise ValueError(f"{item!r} is not name=value or topic:name=value")
        if name in FIXED_TOPIC_SETTINGS:
            raise ValueError(f"{name} is part of how our topics work, and cannot be changed")
    return text


def seconds_by_run(text: str) -> dict[str, float | None]:
    """Pattern of a run's name -> seconds, ``None`` for ever: of ``digits=86400, scratch-*=3600, best=forever``.

    Raises:
        ValueError: an item is none of these; names it.
    """
    found: dict[str, float | None] = {}
    for item in filter(None, map(str.strip, text.split(","))):
        pattern, _, value = (part.strip() for part in item.rpartition("="))
        try:
            seconds = math.inf if value == FOR_EVER else float(value)
        except ValueError:
            seconds = math.nan
        if not pattern or not seconds > 0 or (seconds == math.inf and value != FOR_EVER):
            raise ValueError(f"{item!r} is not run=seconds or run={FOR_EVER}")
        found[pattern] = None if seconds == math.inf else seconds
    return found


def _checked_seconds_by_run(text: str) -> str:
    seconds_by_run(text)
    return text


class Settings(BaseSettings):
    """All settings. ``Settings.load()`` reads the environment and raises :class:`SettingsError` in plain words."""

    model_config = SettingsConfigDict(env_prefix=ENVIRONMENT_PREFIX, extra="forbid", frozen=True)

    # --- Folders
    data_dir: Path = Field(Path(".lightstream"), description="Folder for everything that is kept on this machine.")
    checkpoint_root: Path | None = Field(
        None,
        description="Folder that has the runs' checkpoints in `checkpoints`, for example one that several machines "
        "mount; unset means the data folder. Addresses of checkpoints in the log are relative to it.",
    )
    cache_dir: Path | None = Field(
        None, description="Folder for downloads, shared by all data folders; unset means the user's cache folder."
    )

    disk_free_bytes_min: int = Field(
        512 * 1024 * 1024,
        ge=0,
        description="Free space on a disk, below which what we write to it pauses (the view, workers, checkpoints, the "
        "embedded broker) until there is an eighth more; 0 means never.",
    )

    # --- Kafka: connection and security
    kafka_bootstrap_servers: str | None = Field(
        None, description="host:port[,host:port] of a Kafka cluster; unset means the embedded broker."
    )
    kafka_security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        "PLAINTEXT", description="How to talk to the cluster: SSL encrypts, SASL logs in."
    )
    kafka_sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] | None = Field(
        None, description="How to log in, where the protocol is a SASL one; unset means no login."
    )
    kafka_sasl_username: str | None = Field(None, description="User to log in as; with OAUTHBEARER, the client's id.")
    kafka_sasl_password: SecretStr | None = Field(
        None, description="Password of that user; with OAUTHBEARER, the client's secret."
    )
    kafka_oidc_url: str | None = Field(
        None, description="With OAUTHBEARER, the URL that gives the client its token (OIDC client credentials)."
    )
    kafka_oidc_scope: str | None = Field(None, description="Scope that this token is asked for; unset means none.")
    kafka_ssl_ca_file: Path | None = Field(
        None,
        description="PEM file of the certificate authority that the cluster's certificates are from; unset means the "
        "system's.",
    )
    kafka_ssl_certificate_file: Path | None = Field(
        None, description="PEM file of this client's certificate, where the cluster asks for one (mutual TLS)."
    )
    kafka_ssl_key_file: Path | None = Field(None, description="PEM file of that certificate's key.")
    kafka_ssl_key_password: SecretStr | None = Field(None, description="Password of that key; unset means none.")
    schema_registry_url: str | None = Field(
        None, description="URL of a Confluent-compatible Schema Registry; unset means single-object framing."
    )
    schema_registry_basic_auth: SecretStr | None = Field(
        None, description="user:password for the Schema Registry; unset means none."
    )
    schema_registry_token: SecretStr | None = Field(
        None, description="Bearer token for the Schema Registry; unset means none."
    )
    schema_registry_ca_file: Path | None = Field(
        None,
        description="PEM file of the certificate authority of the Schema Registry; unset means the system's.",
    )

    # --- Kafka: topics and records
    topic_prefix: str = Field(
        "", pattern=r"^[A-Za-z0-9._-]{0,100}$", description="Prefix of each topic's name, to share a cluster."
    )
    topic_partitions: int = Field(
        1,
        ge=1,
        le=1000,
        description="Partitions of the topics keyed by rollout or group, and so the number of workers that can share "
        "the work; each costs requests of its own, and a topic keeps the number that it was created with.",
    )
    topic_replication_factor: int | None = Field(
        None,
        ge=1,
        le=10,
        description="Copies of each partition in the cluster; unset means one on each embedded broker (`brokers`), "
        "and one in a cluster that is named.",
    )
    topic_config: Annotated[str, AfterValidator(_checked_topic_config)] = Field(
        "",
        description="Settings of topics by Kafka's names, comma-separated, besides or in place of ours: "
        "`min.insync.replicas=2, spans:compression.type=zstd`; `name=` leaves one of ours out (docs/operations.md).",
    )
    record_bytes_max: int = Field(
        32 * 1024 * 1024,
        ge=1024 * 1024,
        le=1024 * 1024 * 1024,
        description="Largest Kafka record that we write, and `max.message.bytes` of our topics unless `topic_config` "
        "names another. On a cluster, lower it to the cluster's limit.",
    )
    send_buffer_bytes_max: int = Field(
        256 * 1024 * 1024, ge=1024 * 1024, description="Memory that a process uses for records on their way to Kafka."
    )
    publish_timeout_s: float = Field(
        60.0, gt=0, description="How long a record may take to become durable, restarts of the broker included."
    )

    redact_attributes: str = Field(
        "",
        description="Names of attributes, comma-separated (`*` stands for any text), whose values are taken out of "
        "spans before they go to Kafka (docs/operations.md).",
    )
    redact_pattern: Annotated[str | None, AfterValidator(_checked_pattern)] = Field(
        None,
        description="Regular expression of what is taken out of all texts of spans before they go to Kafka; a call in "
        "which it matches loses its token ids too, and is no training data.",
    )

    # --- Processes and ports
    host: str = Field("127.0.0.1", description="Address that the HTTP and gRPC servers listen on; 0.0.0.0 means all.")
    allowed_hosts: str = Field(
        "",
        description="Names with dots, comma-separated, under which servers may be asked without a token or by "
        "browsers, beside this machine's own and those in `*_url` (docs/operations.md).",
    )
    tokens_file: Path | None = Field(
        None,
        description="TOML file of tokens that servers accept besides their own, each with a name, its SHA-256, scopes "
        "and maybe an end (docs/operations.md); read again when it changes.",
    )
    open_to_network: bool = Field(
        False,
        description="Whether servers may listen beyond this machine (`host`) without asking for a token.",
    )
    tls_certificate_file: Path | None = Field(
        None,
        description="PEM file of the certificate of our servers, with those between it and its authority; they speak "
        "TLS where it is set (docs/operations.md). Read again when it changes.",
    )
    tls_key_file: Path | None = Field(
        None, description="PEM file of that certificate's key; unset means that the certificate's file has it."
    )
    tls_ca_file: Path | None = Field(
        None,
        description="PEM file of authorities by which our clients know our servers, besides the system's; read again "
        "when it changes.",
    )
    tls_client_ca_file: Path | None = Field(
        None,
        description="PEM file of authorities, of which our servers ask each client for a certificate (mutual TLS); our "
        "own clients show `tls_certificate_file`. Unset means that none is asked for.",
    )
    log_format: Literal["text", "json"] = Field(
        "text",
        description="Form of log lines: text, or JSON with the ids of the run, rollout and attempt that "
        "a line is about.",
    )
    own_traces_url: str | None = Field(
        None,
        description="OTLP/HTTP address (`http://collector:4318/v1/traces`) that gets spans of Lightstream's own work: "
        "each request at its servers, each step of a training. Unset means none. It must not be its own gateway.",
    )
    brokers: Annotated[int, AfterValidator(_checked_brokers)] = Field(
        1,
        ge=1,
        le=3,
        description="Brokers of the embedded Kafka: 1, or 3, each with a copy of every record, of which one may fail.",
    )
    broker_port: int = Field(
        0,
        ge=0,
        le=65535,
        description="Port of the embedded broker, of three the first (the others have the next two); 0 means any "
        "free one.",
    )
    view_port: int = Field(0, ge=0, le=65535, description="Port of the view's SQL server; 0 means any free one.")
    view_flight_port: int = Field(
        0, ge=0, le=65535, description="Port of the view's Flight SQL server (for ADBC and JDBC); 0 means any free one."
    )
    proxy_port: int = Field(0, ge=0, le=65535, description="Port of the LLM proxy; 0 means any free one.")
    policy_port: int = Field(0, ge=0, le=65535, description="Port of the policy server; 0 means any free one.")
    store_port: int = Field(0, ge=0, le=65535, description="Port of the store's HTTP server; 0 means any free one.")
    gateway_port: int | None = Field(
        None,
        ge=0,
        le=65535,
        description="OTLP/HTTP port of the gateway; unset means 4318 if that is free, else any.",
    )
    gateway_grpc_port: int | None = Field(
        None,
        ge=0,
        le=65535,
        description="OTLP/gRPC port of the gateway; unset means 4317 if that is free, else any.",
    )
    worker_port: int = Field(
        0, ge=0, le=65535, description="Port at which the worker tells its health and metrics; 0 means any free one."
    )
    runner_port: int = Field(
        0,
        ge=0,
        le=65535,
        description="Port at which a Runner process tells its health and metrics, or the next free one of the 32 from "
        "there on; 0 means that it tells none.",
    )
    trainer_port: int = Field(
        0,
        ge=0,
        le=65535,
        description="Port at which a training tells its health and metrics, or the next free one of the 32 from there "
        "on; 0 means that it tells none.",
    )
    ready_lag_records_max: int = Field(
        100_000, ge=0, description="Records by which view and worker may lag behind the log and count as ready."
    )
    view_url: str | None = Field(
        None,
        description="URL of the view. Unset: the address that the view wrote to this data folder; other machines must "
        "set this.",
    )
    proxy_url: str | None = Field(
        None,
        description="URL of the LLM proxy, which a training hands to its agents. Unset: the address that the proxy "
        "wrote to this data folder; a training with another data folder must set this. Runners do not.",
    )
    store_url: str | None = Field(
        None,
        description="URL of the store's server, for `LightningStoreClient`. Unset: the address that it wrote to this "
        "data folder; other machines must set this.",
    )
    gateway_url: str | None = Field(
        None,
        description="OTLP/HTTP URL of the gateway. Unset: the address that it wrote to this data folder; other "
        "machines must set this.",
    )

    # --- LLM proxy
    llm_backend: Literal["openai", "litellm"] = Field(
        "openai",
        description="How the LLM proxy reaches the model: openai forwards to LIGHTSTREAM_LLM_UPSTREAM_URL (or to the "
        "policy server) and keeps token ids exactly; litellm calls any provider that LiteLLM knows.",
    )
    llm_upstream_url: str | None = Field(
        None,
        description="Base URL (…/v1) of the OpenAI-compatible server that the LLM proxy forwards to; unset means the "
        "policy server that runs on this machine.",
    )
    llm_upstream_api_key: SecretStr | None = Field(
        None, description="API key for that server, sent as a bearer token; unset means none."
    )
    llm_model: str | None = Field(
        None,
        description="Model to request in place of the agent's choice (a LiteLLM name with that back end); unset means "
        "the agent's choice.",
    )
    proxy_token: SecretStr | None = Field(
        None, description="Token (an API key, to agents) that the LLM proxy asks for; unset means none."
    )
    llm_request_timeout_s: float = Field(120.0, gt=0, description="How long the LLM proxy waits for the model server.")
    llm_stream_timeout_s: float = Field(
        1800.0, gt=0, description="Longest total time for a streamed answer of the model server."
    )
    llm_request_bytes_max: int = Field(
        32 * 1024 * 1024, ge=1024, description="Largest chat request that the LLM proxy and the policy server accept."
    )
    llm_response_bytes_max: int = Field(
        256 * 1024 * 1024, ge=1024, description="Largest answer of the model server that the LLM proxy reads."
    )

    # --- OTLP gateway
    gateway_token: SecretStr | None = Field(
        None, description="Bearer token that the OTLP gateway asks for; unset means none."
    )
    gateway_basic_auth: SecretStr | None = Field(
        None, description="user:password that the OTLP gateway accepts as Basic authorization; unset means none."
    )
    gateway_traces_topics: str = Field(
        "",
        description="Topics that OpenTelemetry Collectors write traces to, read as well (full names, comma-separated).",
    )
    gateway_logs_topics: str = Field(
        "",
        description="Topics that OpenTelemetry Collectors write logs to, read as well (full names, comma-separated).",
    )
    gateway_wait_s: float = Field(
        5.0, gt=0, le=60, description="How long an OTLP request may wait for Kafka before its client is told to retry."
    )
    gateway_request_bytes_max: int = Field(
        64 * 1024 * 1024,
        ge=1024,
        le=1024 * 1024 * 1024,
        description="Largest OTLP request that the gateway accepts, unpacked.",
    )

    # --- Store
    store_token: SecretStr | None = Field(
        None, description="Bearer token that the store server asks for and its clients send; unset means none."
    )
    store_request_bytes_max: int = Field(
        64 * 1024 * 1024, ge=1024, description="Largest request that the store server accepts."
    )

    # --- View
    view_token: SecretStr | None = Field(
        None, description="Bearer token that the view's SQL server asks for and its clients send; unset means none."
    )
    view_memory_bytes_max: int | None = Field(
        None,
        ge=256 * 1024 * 1024,
        description="Memory for the view's queries and caches, beyond which they use the disk; unset means half of the "
        "machine's, at most 4 GiB.",
    )
    view_timeout_s_max: float = Field(
        3600.0,
        ge=30,
        le=7 * 24 * 3600.0,
        description="Longest that a statement may run which asks the view for more time (`timeout_s`) than the "
        "usual 30 s.",
    )
    view_process_bytes_max: int | None = Field(
        None,
        ge=512 * 1024 * 1024,
        description="Memory of the view's whole process, beyond which it ends (`lightstream up` starts it again) and "
        "refuses for ten minutes what ran; unset means 3 GiB more than its queries and caches may have.",
    )
    view_retention_s: float | None = Field(
        None,
        gt=0,
        description="How long views keep finished rollouts and all that belongs to them, and what belongs to no "
        "rollout; unset means for ever (docs/disk.md). The log has a retention of its own (`topic_config`).",
    )
    view_retention_runs: Annotated[str, AfterValidator(_checked_seconds_by_run)] = Field(
        "",
        description="Runs for which another time holds than `view_retention_s`, comma-separated, the first that "
        "matches: `digits=86400, scratch-*=3600, best=forever`.",
    )
    sql_view: bool = Field(
        False,
        description="Answer people's statements (`POST /v1/sql` without a lane of training or pages, and Flight SQL) "
        "in a view process of their own, `lightstream view --name sql`, which `lightstream up` then keeps running: "
        "none of them slows or ends the view that training and pages ask. It takes the view's memory and disk once "
        "more.",
    )
    prices_file: Path | None = Field(
        None,
        description="File of what models cost by token, for the view `costs`, on its machine: `lightstream prices` "
        "writes it; unset means `prices.csv` in the data folder.",
    )

    # --- Rollouts and Runners
    rollout_timeout_s: float = Field(
        600.0, gt=0, description="Longest that an attempt may run, where its rollout names no limit."
    )
    rollout_unresponsive_s: float = Field(
        60.0, gt=0, description="Silence after which an attempt counts as lost, where its rollout names no limit."
    )
    instrument: str = Field(
        "all",
        description="Libraries whose calls become spans in Runners: all that are installed with their instrumentors, "
        "none, or comma-separated names (docs/tracing.md).",
    )

    # --- Assembler: rewards and credit
    reward_match: RewardMatchName = Field(
        "trajectory",
        description="What a reward without a link is for (docs/training-data.md).",
    )
    credit: Annotated[str, AfterValidator(checked_credit)] = Field(
        "identical",
        description="How rewards are assigned to calls: identical, identical_plus_own, last_call_only, "
        "discounted:<0..1>, or module:function (docs/training-data.md).",
    )
    automatic_rewards: str = Field(
        "",
        description="Rewards for events in the spans, comma-separated: tool_ok:<value>, tool_error:<value>, "
        "exception:<value>, violation:<value>, violation.<severity>:<value>, module:function.",
    )
    rollout_functions: bool = Field(
        False,
        description="Whether a rollout may name a credit function of its own, which workers then import: who can "
        "enqueue rollouts can run code there.",
    )
    trained_agents: str | None = Field(
        None, description="Regular expression of the agents whose calls are trained on; unset means all."
    )

    # --- Assembler: limits
    late_span_s_max: float = Field(
        7 * 24 * 3600.0,
        ge=0,
        description="How long after an attempt began a late span or reward still revises its trajectory.",
    )
    trajectory_bytes_max: int = Field(
        256 * 1024 * 1024,
        ge=1024 * 1024,
        description="Largest trajectory, and most memory of the worker for an open attempt (without a folder for large "
        "ones at most 7/8 of a record); calls beyond it are dropped as too_large.",
    )
    large_records_dir: Path | None = Field(
        None,
        description="Folder for trajectories too large for a record, at the same path wherever workers, views and "
        "trainers run; unset means the data folder with the embedded broker, else none: their calls are dropped.",
    )
    large_record_grace_s: float = Field(
        24 * 3600.0,
        ge=120,
        description="How long the file of a large trajectory is kept after the topic's retention may have deleted its "
        "record; longer than a reader takes from record to file.",
    )

    # --- Policy server
    policy_token: SecretStr | None = Field(
        None,
        description="Bearer token that the policy server asks for; LLM proxy and trainers send it. Unset means none.",
    )
    policy_device: str = Field(
        "auto", pattern=r"^(auto|cpu|cuda(:\d+)?)$", description="Where the policy runs: auto, cpu, cuda or cuda:N."
    )
    policy_dtype: Literal["float32", "bfloat16", "float16"] = Field(
        "float32",
        description="Number format of the policy's weights, the same as `VERL(dtype=...)`; log-probabilities are "
        "float32 always.",
    )
    policy_threads: int = Field(1, ge=1, le=256, description="CPU threads that the policy's arithmetic may use.")
    policy_batch_window_ms: float = Field(
        2.0, ge=0, le=1000, description="How long an idle policy server waits for more requests to share a batch."
    )
    policy_batch_max: int = Field(128, ge=1, le=4096, description="Most sequences generated at once.")
    policy_versions_kept: int = Field(3, ge=1, le=100, description="Versions of the weights kept in memory.")
    policy_lora_rank_max: int = Field(
        256, ge=1, le=4096, description="Largest rank of an adapter (LoRA) that the policy server allows."
    )
    policy_version_wait_s: float = Field(
        30.0, ge=0, description="How long a request may wait for a version that is not known yet."
    )
    policy_swap: Literal["drain", "keep", "continue"] = Field(
        "drain",
        description="What becomes of answers under way when a version is published: drain (the version that began them "
        "finishes them), keep (they go on with the new one), or continue (they are handed back, and the LLM proxy has "
        "the new one go on with them). In each case the recorded call names the version of every token.",
    )

    @classmethod
    def load(cls, **overrides: Any) -> Self:
        """Read the environment; ``overrides`` win over it.

        Raises:
            SettingsError: a variable has a value it cannot have or is misspelled, or an unknown setting was passed.
        """
        _refuse_misspelled(cls.model_fields)
        try:
            return cls(**overrides)
        except ValidationError as error:
            raise SettingsError(_in_plain_words(error), next_step="Correct or unset it and try again.") from error

    @property
    def cache_folder(self) -> Path:
        """Folder for downloads: the one that is set, else ours in the user's cache folder. It may not exist yet."""
        if self.cache_dir is not None:
            return self.cache_dir
        return user_cache_path("lightstream")

    def to_environment(self) -> dict[str, str]:
        """The settings that differ from their defaults, as environment variables for a child process."""
        environment: dict[str, str] = {}
        for name in type(self).model_fields:
            value = getattr(self, name)
            if value is None or value == type(self).model_fields[name].default:
                continue
            text = value.get_secret_value() if isinstance(value, SecretStr) else str(value)
            environment[f"{ENVIRONMENT_PREFIX}{name.upper()}"] = text
        return environment


_GROUP_STARTS: Mapping[str, str] = {
    "data_dir": "Folders",
    "kafka_bootstrap_servers": "Kafka: connection and security",
    "topic_prefix": "Kafka: topics and records",
    "host": "Processes and ports",
    "llm_backend": "LLM proxy",
    "gateway_token": "OTLP gateway",
    "store_token": "Store",
    "view_token": "View",
    "rollout_timeout_s": "Rollouts and Runners",
    "reward_match": "Assembler: rewards and credit",
    "late_span_s_max": "Assembler: limits",
    "policy_token": "Policy server",
}
"""First setting of each group -> what the group is about; a group ends where the next one begins."""


def _settings_by_group() -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    title = ""
    for name in Settings.model_fields:
        title = _GROUP_STARTS.get(name, title)
        groups.setdefault(title, []).append(name)
    return groups


SETTING_GROUPS: Mapping[str, Sequence[str]] = _settings_by_group()
"""Title -> names of the settings, in reading order."""


def _refuse_misspelled(known: Iterable[str]) -> None:
    """Refuse a variable that nearly has the name of a setting, which would otherwise be ignored without a word.

    Names that resemble none are left alone: orchestrators set variables named after services.
    """
    names = [name.upper() for name in known]
    for variable in os.environ:
        name = variable.upper().removeprefix(ENVIRONMENT_PREFIX)
        if name == variable.upper() or name in names:
            continue
        meant = difflib.get_close_matches(name, names, n=1, cutoff=SIMILARITY_MIN)
        if meant:
            raise SettingsError(
                f"{variable} is not a setting; {ENVIRONMENT_PREFIX}{meant[0]} is.",
                next_step="Correct or unset it and try again.",
            )


def _in_plain_words(error: ValidationError) -> str:
    """One sentence per bad setting: the variable, the value it has, what it accepts."""
    sentences: list[str] = []
    for item in error.errors():
        name = str(item["loc"][0]) if item["loc"] else "?"
        field = Settings.model_fields.get(name)
        variable = f"{ENVIRONMENT_PREFIX}{name.upper()}"
        if field is None:
            sentences.append(f"{variable} is not a setting.")
            continue
        shown = "(hidden)" if "Secret" in str(field.annotation) else repr(item.get("input"))
        sentences.append(f"{variable} is {shown}: {item['msg']}. It means: {field.description}")
    return " ".join(sentences)
