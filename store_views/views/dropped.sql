-- Every LLM call and reward that did not become training data, with the reason. `derived` rows are calls and rewards that
-- the assembler never takes up: without a rollout, of an attempt that was never opened, or so long after their attempt
-- was closed, or so many, that they are in no revision.
-- Columns of `assembler_drops`, and:
--   status: status of the rollout when the attempt was closed; of `derived` rows, as it is now.
--   agent_name: agent that made the call; `agent` where nothing names one; NULL for what is no call.
--   model: model that answered, whichever version of it.
--   derived: true for rows that only the log shows, since the assembler never takes them up.
--   log_partition: partition of the topic `spans` that the span lies in.
--   log_offset: offset of the span in that partition.
SELECT
    rollout_id, attempt_id, span_id, trace_id, response_id, choice_index, is_llm_call, reason, detail, false AS derived,
    run_id, mode, group_id, status, agent_name, model, model_version, call_index,
    source_partition AS log_partition, source_offset AS log_offset
FROM assembler_drops
UNION ALL BY NAME
SELECT
    lost.* EXCLUDE (found_agent, found_model), true AS derived, rollout.run_id, rollout.mode, rollout.group_id,
    rollout.status,
    CASE WHEN is_llm_call THEN coalesce(found_agent, 'agent') END AS agent_name,
    nullif(model_family(found_model), '') AS model, nullif(found_model, '') AS model_version
FROM (
    SELECT
        lost.*, span.agent_name AS found_agent,
        coalesce(span.llm_response_model, span.llm_requested_model, span.read_model) AS found_model
    FROM (
        SELECT
            rollout_id, attempt_id, span_id, trace_id, response_id, choice_index, true AS is_llm_call, reason, detail,
            log_partition, log_offset
        FROM unaccounted_calls
        WHERE fate = 'dropped'
        UNION ALL BY NAME
        SELECT
            rollout_id, attempt_id, span_id, trace_id, response_id, choice_index, is_llm_call, reason, detail,
            log_partition, log_offset
        FROM unassembled
    ) AS lost
    JOIN spans_raw AS span ON span.log_partition = lost.log_partition AND span.log_offset = lost.log_offset
) AS lost
LEFT JOIN (SELECT rollout_id, run_id, mode, group_id, status FROM rollouts_latest) AS rollout
    ON rollout.rollout_id = lost.rollout_id
