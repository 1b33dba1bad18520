-- What became of every logged span that records an LLM call. `fate`: triplet, dropped, pending (its attempt is open, or
-- not yet assembled), repeated (the same span again, or attached to a rollout) or unaccounted (an error of ours, never expected).
-- Columns of `spans_raw`, and:
--   fate: `triplet`, `dropped`, `pending`, `repeated` or `unaccounted`.
--   reason: why the call was dropped; the codes are listed under Reasons.
--   detail: more about the reason, in words.
--   call_index: number of the call within its attempt, from 0; NULL while it is not assembled.
--   agent_name: agent that made the call; NULL while it is not assembled.
--   reward: reward of a call that is training data.
--   fates: how many triplets and drops the assembler made of the span; more than one is an error of ours.
WITH accounted AS (
    SELECT source_partition AS log_partition, source_offset AS log_offset, rollout_id,
        'triplet' AS fate, NULL AS reason, '' AS detail, call_index, agent_name, reward
    FROM triplets
    UNION ALL
    SELECT source_partition, source_offset, rollout_id, if(is_llm_call, 'dropped', 'repeated'), reason, detail,
        call_index, agent_name, NULL
    FROM assembler_drops
    WHERE is_llm_call OR reason = 'conflicting_span'  -- of whose call another span with its id told first
),
by_place AS (
    SELECT log_partition, log_offset, rollout_id,
        any_value(fate) AS fate, any_value(reason) AS reason, any_value(detail) AS detail,
        any_value(call_index) AS call_index, any_value(agent_name) AS agent_name,
        any_value(reward) AS reward, count(*) AS fates
    FROM accounted
    GROUP BY ALL
)
SELECT
    rollout_id, call.attempt_id, call.trace_id, call.span_id, call.llm_response_id AS response_id,
    call.llm_choice_index AS choice_index, fate,
    CASE WHEN fate = 'dropped' THEN reason END AS reason,
    CASE WHEN fate = 'dropped' THEN detail ELSE '' END AS detail,
    by_place.call_index, by_place.agent_name, by_place.reward, fates, log_partition, log_offset
FROM spans_raw AS call
JOIN by_place USING (log_partition, log_offset, rollout_id)
WHERE call.llm_choice_index IS NOT NULL
UNION ALL BY NAME
SELECT *, 0 AS fates FROM unaccounted_calls
