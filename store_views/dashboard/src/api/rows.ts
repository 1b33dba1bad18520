/** Columns of the named queries, written by `make docs`. */

export interface Rows {
  answer: {
    rollout_id: string | null;
    run_id: string | null;
    status: string | null;
    mode: string | null;
    input_json: string | null;
    reward: number | null;
    response_json: string | null;
  };
  blame: {
    rollout_id: string | null;
    span_id: string | null;
    step: number | null;
    group_id: string | null;
    reward: number | null;
    advantage: number | null;
    response_likeness: number | null;
    prompt_likeness: number | null;
    raised_by: number | null;
  };
  "calls-by-fate": {
    fate: string | null;
    reason: string | null;
    count: number | null;
  };
  catalogue: {
    table_name: string | null;
    column_name: string | null;
  };
  configuration: {
    name: string | null;
    value: string | null;
    other_value: string | null;
    differs: boolean | null;
  };
  conversation: {
    attempt_id: string | null;
    span_id: string | null;
    agent_name: string | null;
    continues: boolean | null;
    continued_span_id: string | null;
    error: string | null;
    call_index: number | null;
    reward: number | null;
    policy_version: number | null;
    sampled: number | null;
    response_tokens: number | null;
    place: number | null;
    role: string | null;
    text: string | null;
    characters: number | null;
    reasoning: string | null;
    tool_calls: string | null;
    tool_call_id: string | null;
    left_out: number | null;
  };
  "cost-by-model": {
    run_id: string | null;
    model: string | null;
    versions: number | null;
    calls: number | null;
    failed_calls: number | null;
    prompt_tokens: number | null;
    response_tokens: number | null;
    seconds_mean: number | null;
    seconds_p95: number | null;
    cost: number | null;
    calls_without_price: number | null;
  };
  curve: {
    run_id: string | null;
    trainer_id: string | null;
    step: number | null;
    outcome: string | null;
    policy_version: number | null;
    reward_mean: number | null;
    trajectory_count: number | null;
    triplet_count: number | null;
    seconds: number | null;
    ended_at: string | null;
  };
  "dead-letters": {
    reason: string | null;
    detail: string | null;
    origin_topic: string | null;
    origin_partition: number | null;
    origin_offset: number | null;
    value_size: number | null;
    value: string | null;
    reported_by: string | null;
    observed_unix_nano: string | null;
    log_partition: number | null;
    log_offset: number | null;
  };
  "dropped-reasons": {
    run_id: string | null;
    is_llm_call: boolean | null;
    reason: string | null;
    dropped: number | null;
    rollouts: number | null;
    share_of_calls: number | null;
    example: string | null;
  };
  drops: {
    reason: string | null;
    is_llm_call: boolean | null;
    count: number | null;
    detail: string | null;
    rollout_id: string | null;
    span_id: string | null;
    log_partition: number | null;
    log_offset: number | null;
  };
  errors: {
    place: string | null;
    name: string | null;
    error: string | null;
    count: number | null;
    rollouts: number | null;
    example: string | null;
    first_unix_nano: string | null;
    last_unix_nano: string | null;
    counts: (number | null)[] | null;
  };
  evaluation: {
    rollout_id: string | null;
    status: string | null;
    group_id: string | null;
    is_over: boolean | null;
    model: string | null;
    task: number | null;
    sample: number | null;
    input_json: string | null;
    is_assembled: boolean | null;
    reward: number | null;
    calls: number | null;
    prompt_tokens: number | null;
    response_tokens: number | null;
    cost: number | null;
    seconds: number | null;
    policy_versions: (number | null)[] | null;
    refusals: number | null;
    tool_errors: number | null;
  };
  "failures-by-error": {
    run_id: string | null;
    status: string | null;
    error_type: string | null;
    error: string | null;
    attempts: number | null;
    rollouts: number | null;
    example: string | null;
  };
  "flat-groups": {
    run_id: string | null;
    group_id: string | null;
    rollouts: number | null;
    group_size: number | null;
    reward: number | null;
    closed_at: string | null;
    input_json: string | null;
  };
  funnel: {
    run_id: string | null;
    stage: string | null;
    count: number | null;
    reason: string | null;
  };
  group: {
    rollout_id: string | null;
    run_id: string | null;
    status: string | null;
    mode: string | null;
    group_size: number | null;
    input_json: string | null;
    seconds: number | null;
    reward: number | null;
    call_count: number | null;
    error_type: string | null;
    error_message: string | null;
    step: number | null;
    reason_code: string | null;
    reason: string | null;
    response_json: string | null;
    response_tokens: number | null;
    policy_version: number | null;
  };
  lineage: {
    step: number | null;
    version: number | null;
    outcome: string | null;
    window_number: number | null;
    window_start_at: string | null;
    window_end_at: string | null;
    trained: number | null;
    not_trained: number | null;
    reward_mean: number | null;
    reward_names: (string | null)[] | null;
    window_left_out: Record<string, number | null> | null;
    checkpoint_url: string | null;
  };
  "lost-calls": {
    run_id: string | null;
    rollout_id: string | null;
    attempt_id: string | null;
    span_id: string | null;
    reason: string | null;
    detail: string | null;
    log_partition: number | null;
    log_offset: number | null;
  };
  "not-trained": {
    reason_code: string | null;
    count: number | null;
    meaning: string | null;
    next_step: string | null;
    example: string | null;
  };
  "open-rollouts": {
    rollout_id: string | null;
  };
  prompts: {
    prompt: string | null;
    parent: string | null;
    critique: string | null;
    template: string | null;
    score: number | null;
    tasks: number | null;
    measurements: number | null;
  };
  resources: {
    resources_id: string | null;
    version: number | null;
    model: string | null;
    checkpoint_url: string | null;
    created_unix_nano: string | null;
    resources: string | null;
    made_with: string | null;
    rollouts: number | null;
    reward: number | null;
    log_partition: number | null;
    log_offset: number | null;
  };
  "reward-by-agent": {
    run_id: string | null;
    agent_name: string | null;
    calls: number | null;
    rollouts: number | null;
    rewarded_calls: number | null;
    reward_mean: number | null;
    reward_deviation: number | null;
    reward_min: number | null;
    reward_max: number | null;
    response_tokens_mean: number | null;
  };
  "reward-histogram": {
    bin: number | null;
    low: number | null;
    high: number | null;
    count: number | null;
  };
  "rollout-figures": {
    reward: number | null;
    above_mean: number | null;
    deviation: number | null;
    divided: number | null;
    policy_first: number | null;
    policy_last: number | null;
    prompt_tokens: number | null;
    response_tokens: number | null;
    cost: number | null;
    calls_without_price: number | null;
    step: number | null;
    task: string | null;
    same_task: number | null;
  };
  "rollout-marks": {
    spans: number | null;
    trajectories: number | null;
    consumed: number | null;
    of_group: number | null;
  };
  rollouts: {
    rollout_id: string | null;
    run_id: string | null;
    mode: string | null;
    status: string | null;
    group_id: string | null;
    attempt_count: number | null;
    input_json: string | null;
    enqueued_unix_nano: string | null;
    seconds: number | null;
    sort_key: number | null;
    task: string | null;
    reward: number | null;
    call_count: number | null;
    step: number | null;
    reason_code: string | null;
    answer: string | null;
    tool_calls: string | null;
  };
  "rows-by-run": {
    run_id: string | null;
    row_count: number | null;
    large_bytes: number | null;
  };
  "run-state": {
    state: string | null;
    error: string | null;
    trainer_id: string | null;
    host: string | null;
    pid: number | null;
    said_unix_nano: string | null;
    silent_seconds: number | null;
  };
  run: {
    tasks: number | null;
    groups: number | null;
    rollouts: number | null;
    train_rollouts: number | null;
    waiting: number | null;
    running: number | null;
    succeeded: number | null;
    failed: number | null;
    cancelled: number | null;
    attempts: number | null;
    retried: number | null;
    rewarded: number | null;
    first_unix_nano: string | null;
    last_unix_nano: string | null;
  };
  runs: {
    run_id: string | null;
    rollouts: number | null;
    finished: number | null;
    waiting: number | null;
    running: number | null;
    succeeded: number | null;
    failed: number | null;
    cancelled: number | null;
    first_unix_nano: string | null;
    last_unix_nano: string | null;
    trainers: string | null;
    step: number | null;
    steps_planned: number | null;
    reward: number | null;
    rewards: (number | null)[] | null;
    state: string | null;
    error: string | null;
    said_unix_nano: string | null;
    changed_unix_nano: string | null;
  };
  scores: {
    name: string | null;
    value: number | null;
    comment: string | null;
    key: string | null;
    compared_with: string | null;
    scored_span_id: string | null;
    scored_unix_nano: string | null;
    match: string | null;
    span_id: string | null;
    log_partition: number | null;
    log_offset: number | null;
  };
  "slowest-tools": {
    run_id: string | null;
    tool_name: string | null;
    agent_name: string | null;
    runs: number | null;
    failed_runs: number | null;
    seconds_mean: number | null;
    seconds_p95: number | null;
    seconds_max: number | null;
  };
  span: {
    attempt_id: string | null;
    name: string | null;
    trace_id: string | null;
    status_message: string | null;
    start_unix_nano: string | null;
    end_unix_nano: string | null;
    attributes: string | null;
    events: string | null;
    links: string | null;
    scope_name: string | null;
    has_messages: boolean | null;
    characters: number | null;
    input: string | null;
    output: string | null;
    llm_error_message: string | null;
    llm_http_status: number | null;
    log_partition: number | null;
    log_offset: number | null;
  };
  spans: {
    span_id: string | null;
    parent_id: string | null;
    name: string | null;
    status: string | null;
    kind: string | null;
    error: string | null;
    log_partition: number | null;
    log_offset: number | null;
    origin: string | null;
    start: number | null;
    end: number | null;
  };
  staleness: {
    run_id: string | null;
    trainer_id: string | null;
    step: number | null;
    calls: number | null;
    staleness_mean: number | null;
    staleness_max: number | null;
  };
  "step-changes": {
    kind: string | null;
    name: string | null;
    before: number | null;
    now: number | null;
    example: string | null;
  };
  "step-groups": {
    group_id: string | null;
    rollouts: number | null;
    trained: number | null;
    reward: number | null;
    deviation: number | null;
    low: number | null;
    high: number | null;
    input_json: string | null;
  };
  steps: {
    step: number | null;
    outcome: string | null;
    cause: string | null;
    trainer_id: string | null;
    steps_planned: number | null;
    resources_id: string | null;
    policy_version: number | null;
    trajectory_count: number | null;
    group_count: number | null;
    triplet_count: number | null;
    seconds: number | null;
    ended_unix_nano: string | null;
    metrics: Record<string, number | null> | null;
    log_partition: number | null;
    log_offset: number | null;
  };
  stuck: {
    rollout_id: string | null;
    run_id: string | null;
    status: string | null;
    attempt_count: number | null;
    worker_id: string | null;
    last_sign_at: string | null;
    quiet_seconds: number | null;
  };
  "task-rates": {
    task: string | null;
    rollouts: number | null;
    pass_rate: number | null;
    low: number | null;
    mean: number | null;
    high: number | null;
  };
  "task-rollouts": {
    rollout_id: string | null;
    run_id: string | null;
    mode: string | null;
    status: string | null;
    group_id: string | null;
    seconds: number | null;
    enqueued_unix_nano: string | null;
    reward: number | null;
    policy_version: number | null;
    step: number | null;
  };
  task: {
    run_id: string | null;
    policy_version: number | null;
    rollouts: number | null;
    reward: number | null;
    low: number | null;
    high: number | null;
    best: string | null;
    worst: string | null;
    of_rollouts: number | null;
    input_json: string | null;
  };
  tokens: {
    call_index: number | null;
    span_id: string | null;
    prompt_token_ids: (number | null)[] | null;
    response_token_ids: (number | null)[] | null;
    response_logprobs: (number | null)[] | null;
    response_mask: (number | null)[] | null;
    reward: number | null;
    policy_version: number | null;
    policy_version_runs: ({ first_token: number | null; policy_version: number | null } | null)[] | null;
    finish_reason: string | null;
    log_partition: number | null;
    log_offset: number | null;
    texts: (string | null)[] | null;
  };
  "tool-names": {
    tool_name: string | null;
  };
  tools: {
    tool_name: string | null;
    calls: number | null;
    errors: number | null;
    error_rate: number | null;
    seconds_p50: number | null;
    seconds_p95: number | null;
    seconds_share: number | null;
    rollouts: number | null;
    reward_with: number | null;
    reward_without: number | null;
    reward_failed: number | null;
    last_error: string | null;
    error_rollout: string | null;
  };
  "traffic-tasks": {
    input_json: string | null;
    rollouts: number | null;
    last_unix_nano: number | null;
  };
  "trained-inputs": {
    tasks: number | null;
  };
  trained: {
    rollouts: number | null;
    calls: number | null;
  };
  unjudged: {
    rollout_id: string | null;
    attempt_id: string | null;
    group_id: string | null;
    input_json: string | null;
    is_unjudged: boolean | null;
  };
  unscored: {
    rollout_id: string | null;
    run_id: string | null;
    mode: string | null;
    status: string | null;
    input_json: string | null;
    enqueued_unix_nano: string | null;
  };
  "versions-that-saw": {
    run_id: string | null;
    version: number | null;
    resources_id: string | null;
    rollouts: number | null;
    first_step: number | null;
    last_step: number | null;
    checkpoint_url: string | null;
  };
  workers: {
    worker_id: string | null;
    kind: string | null;
    host: string | null;
    pid: number | null;
    status: string | null;
    rollouts: number | null;
    first_rollout: string | null;
    heartbeat_unix_nano: string | null;
    stats_json: string | null;
  };
}
