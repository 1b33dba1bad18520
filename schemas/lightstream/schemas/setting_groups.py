"""The settings by what they are about, for people who look for one. Each is in one group."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SETTING_GROUPS", "SettingGroup"]


@dataclass(frozen=True, slots=True)
class SettingGroup:
    """Settings that belong together.

    Attributes:
        title: what they are about.
        names: fields of ``Settings``, in reading order.
    """

    title: str
    names: tuple[str, ...]


SETTING_GROUPS: tuple[SettingGroup, ...] = (
    SettingGroup("Folders", ("data_dir", "cache_dir")),
    SettingGroup(
        "Kafka: connection and security",
        (
            "kafka_bootstrap_servers",
            "kafka_security_protocol",
            "kafka_sasl_mechanism",
            "kafka_sasl_username",
            "kafka_sasl_password",
            "kafka_ssl_ca_file",
            "schema_registry_url",
            "schema_registry_basic_auth",
        ),
    ),
    SettingGroup(
        "Kafka: topics and records",
        (
            "topic_prefix",
            "topic_partitions",
            "topic_replication_factor",
            "record_bytes_max",
            "send_buffer_bytes_max",
            "publish_timeout_s",
        ),
    ),
    SettingGroup(
        "Processes and ports",
        (
            "host",
            "broker_port",
            "view_port",
            "proxy_port",
            "policy_port",
            "store_port",
            "gateway_port",
            "gateway_grpc_port",
            "view_url",
            "proxy_url",
            "store_url",
            "gateway_url",
        ),
    ),
    SettingGroup(
        "LLM proxy",
        (
            "llm_backend",
            "llm_upstream_url",
            "llm_upstream_api_key",
            "llm_model",
            "proxy_token",
            "llm_request_timeout_s",
            "llm_stream_timeout_s",
            "llm_request_bytes_max",
            "llm_response_bytes_max",
        ),
    ),
    SettingGroup(
        "OTLP gateway",
        (
            "gateway_token",
            "gateway_basic_auth",
            "gateway_traces_topics",
            "gateway_logs_topics",
            "gateway_wait_s",
            "gateway_request_bytes_max",
        ),
    ),
    SettingGroup("Store", ("store_token", "store_request_bytes_max")),
    SettingGroup("View", ("view_memory_bytes_max",)),
    SettingGroup("Rollouts and Runners", ("rollout_timeout_s", "rollout_unresponsive_s", "instrument")),
    SettingGroup("Assembler: rewards and credit", ("reward_match", "credit", "automatic_rewards", "trained_agents")),
    SettingGroup(
        "Assembler: limits",
        ("late_span_s_max", "trajectory_bytes_max", "large_records_dir", "large_record_grace_s"),
    ),
    SettingGroup(
        "Policy server",
        (
            "policy_device",
            "policy_dtype",
            "policy_threads",
            "policy_batch_window_ms",
            "policy_batch_max",
            "policy_versions_kept",
            "policy_version_wait_s",
        ),
    ),
)
