-- The trained calls that did most to make an answer more probable; at the end, those that made it less so. A call counts by
-- its advantage (its reward minus the mean of its group's rollouts, those without a call too) times its likeness to the answer: the share of the answer's pairs of
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
used AS (
    SELECT consumed.rollout_id, consumed.attempt_id, consumed.revision, consumed.group_id, consumed.step,
        consumed.triplet_count > 0 AS has_weight
    FROM consumed_raw AS consumed
    JOIN answer ON answer.run_id = consumed.run_id
    JOIN (SELECT log_partition, log_offset, policy_version FROM training_steps) AS step
        ON step.log_partition = consumed.log_partition AND step.log_offset = consumed.log_offset
            AND (answer.policy_version IS NULL OR coalesce(step.policy_version, -1) < answer.policy_version)
    WHERE consumed.outcome = 'updated'
),
called AS (
    SELECT rollout_id, attempt_id, revision, call_index, arg_min(span_id, log_offset) AS span_id,
        arg_min(reward, log_offset) AS reward
    FROM triplets_raw
    WHERE rollout_id IN (SELECT rollout_id FROM used)
    GROUP BY ALL
),
scored AS (
    SELECT step, group_id, avg(score) AS reward
    FROM (
        SELECT used.step, used.group_id, coalesce(avg(called.reward), any_value(made.reward)) AS score
        FROM used
        JOIN (
            SELECT rollout_id, attempt_id, revision, any_value(mode) AS mode, any_value(reward) AS reward FROM trajectories_raw
            WHERE rollout_id IN (SELECT rollout_id FROM used) GROUP BY ALL
        ) AS made USING (rollout_id, attempt_id, revision)
        LEFT JOIN called USING (rollout_id, attempt_id, revision)
        WHERE made.mode <> 'test'
        GROUP BY used.step, used.group_id, rollout_id, attempt_id, revision
    )
    GROUP BY ALL
),
trained AS (
    SELECT used.*, call_index, span_id, called.reward, called.reward - scored.reward AS advantage
    FROM used JOIN called USING (rollout_id, attempt_id, revision) JOIN scored USING (step, group_id)
),
likened AS (
    SELECT trained.*,
        len(list_intersect(answer.response_pairs,
            list_zip([-1] || triplet.response_token_ids, triplet.response_token_ids)[:-2]))
            / greatest(len(answer.response_pairs), 1) AS response_likeness,
        len(list_intersect(answer.prompt_pairs,
            list_zip([-1] || triplet.prompt_token_ids, triplet.prompt_token_ids)[:-2]))
            / greatest(len(answer.prompt_pairs), 1) AS prompt_likeness
    FROM (FROM trained WHERE has_weight AND advantage <> 0) AS trained
    JOIN (
        SELECT rollout_id, attempt_id, revision, call_index, any_value(prompt_token_ids) AS prompt_token_ids,
            any_value(response_token_ids) AS response_token_ids
        FROM triplets_raw
        WHERE rollout_id IN (SELECT rollout_id FROM trained WHERE has_weight AND advantage <> 0)
        GROUP BY ALL
    ) AS triplet USING (rollout_id, attempt_id, revision, call_index)
    CROSS JOIN answer
)
SELECT rollout_id, span_id, step, group_id, reward, advantage, response_likeness, prompt_likeness,
    advantage * response_likeness * prompt_likeness AS raised_by
FROM likened
WHERE response_likeness > 0
ORDER BY raised_by DESC, step DESC, rollout_id, call_index
LIMIT $limit
