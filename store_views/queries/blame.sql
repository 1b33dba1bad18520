-- The trained calls that did most to make an answer more probable; at the end, those that made it less so. A call counts by
-- its advantage (its reward minus the mean of its group) times its likeness to the answer: the share of the answer's pairs of
-- neighbouring tokens that it has, times the same of the prompt. That is a first approximation of what one step of a policy
-- gradient does to the probability of the answer. Only steps before the answer's policy version count.
-- $span: span id of the call whose answer it is.
-- $choice = 0: which choice of its answer.
-- $limit = 10: how many rows.
WITH answer AS (
    SELECT call.run_id, call.policy_version,
        list_distinct(list_zip([-1] || call.prompt_token_ids, call.prompt_token_ids)[:-2]) AS prompt_pairs,
        list_distinct(list_zip([-1] || call.response_token_ids, call.response_token_ids)[:-2]) AS response_pairs
    FROM llm_calls AS call
    WHERE span_id = $span AND choice_index = $choice AND response_token_ids IS NOT NULL
    ORDER BY call.log_offset LIMIT 1
),
trained AS (
    SELECT consumed.run_id, consumed.rollout_id, consumed.attempt_id, consumed.revision, consumed.group_id,
        consumed.step, consumed.call_index, consumed.span_id, consumed.reward,
        consumed.reward - avg(consumed.reward) OVER (PARTITION BY consumed.run_id, consumed.step, consumed.group_id)
            AS advantage
    FROM consumed_calls AS consumed
    JOIN answer ON answer.run_id = consumed.run_id
        AND (answer.policy_version IS NULL OR coalesce(consumed.step_policy_version, -1) < answer.policy_version)
    WHERE consumed.outcome = 'updated'
),
likened AS (
    SELECT trained.*,
        len(list_intersect(answer.response_pairs,
            list_zip([-1] || triplet.response_token_ids, triplet.response_token_ids)[:-2]))
            / greatest(len(answer.response_pairs), 1) AS response_likeness,
        len(list_intersect(answer.prompt_pairs,
            list_zip([-1] || triplet.prompt_token_ids, triplet.prompt_token_ids)[:-2]))
            / greatest(len(answer.prompt_pairs), 1) AS prompt_likeness
    FROM trained
    JOIN (
        SELECT rollout_id, attempt_id, revision, call_index, any_value(prompt_token_ids) AS prompt_token_ids,
            any_value(response_token_ids) AS response_token_ids
        FROM triplets_raw GROUP BY ALL
    ) AS triplet USING (rollout_id, attempt_id, revision, call_index)
    CROSS JOIN answer
)
SELECT rollout_id, span_id, step, group_id, reward, advantage, response_likeness, prompt_likeness,
    advantage * response_likeness * prompt_likeness AS raised_by
FROM likened
WHERE advantage <> 0 AND response_likeness > 0
ORDER BY raised_by DESC, step DESC, rollout_id, call_index
LIMIT $limit
