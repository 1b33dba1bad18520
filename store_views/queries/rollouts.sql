-- Rollouts, the last enqueued first, with reward, step, or the reason why they were not trained on. The last row's
-- `enqueued_unix_nano` and `rollout_id` name the next page; where they are sorted, `sort_key` does too.
-- $run: only this run.
-- $status: only those of this status.
-- $mode: only train, val or test.
-- $group: only this group.
-- $text: only those whose id or task has this text.
-- $reason: only those that were not trained on for this reason (a code), or `trained`.
-- $step: only those that this step consumed.
-- $nanos: only those enqueued before this time, in nanoseconds since 1970, or at it and with a lesser id than `id`.
-- $id: see `nanos`.
-- $reward_min: only those of at least this reward.
-- $reward_max: only those of at most this reward.
-- $tool: only those that used this tool.
-- $error: only those in whose attempts, tools or LLM calls an error has this text; of a tool its name, too.
-- $task: only those of this task, the hash (MD5) of its input.
-- $sort: by `reward`, `seconds`, `calls`, `attempts` or `enqueued`, the highest first; with `-` before it the lowest.
-- $sort_key: with `nanos` and `id`, only those that come after the row with these.
-- $answers: any value, for the last answer of each, its text (`answer`) and `tool_calls`.
-- $whole: any value, for whole inputs and answers; else `input_json` has at most 400 characters and `answer` 2,000, then `…`.
-- $limit = 100: how many rows.
WITH page AS (
    SELECT rollout_id, run_id, mode, status, group_id, attempt_count,
        if($whole::VARCHAR IS NULL AND length(input_json) > 400, concat(left(input_json, 399), '…'), input_json) AS input_json,
        input_json AS whole_input, enqueued_unix_nano, seconds
        , coalesce(CASE  -- where $sort is given
            ltrim($sort, '-') WHEN 'reward' THEN reward WHEN 'seconds' THEN seconds WHEN 'calls' THEN call_count  -- where $sort is given
            WHEN 'attempts' THEN attempt_count ELSE enqueued_unix_nano END  -- where $sort is given
            * if(starts_with($sort, '-'), -1.0, 1.0), -1e300) AS sort_key  -- where $sort is given
    FROM rollouts
    LEFT JOIN (  -- where $sort is given
        SELECT rollout_id, any_value(reward) AS reward, any_value(call_count) AS call_count  -- where $sort is given
        FROM trajectories_latest WHERE final AND ($run::VARCHAR IS NULL OR run_id = $run) GROUP BY rollout_id  -- where $sort is given
    ) AS sorted USING (rollout_id)  -- where $sort is given
    WHERE ($run::VARCHAR IS NULL OR run_id = $run)
        AND ($status::VARCHAR IS NULL OR status = $status)
        AND ($mode::VARCHAR IS NULL OR mode = $mode)
        AND ($group::VARCHAR IS NULL OR coalesce(group_id, rollout_id) = $group)
        AND ($text::VARCHAR IS NULL OR contains(rollout_id, $text) OR contains(lower(input_json), lower($text)))
        AND ($nanos::BIGINT IS NULL OR $sort_key::DOUBLE IS NOT NULL OR (enqueued_unix_nano, rollout_id) < ($nanos::BIGINT, $id::VARCHAR))
        AND ($reason::VARCHAR IS NULL OR rollout_id IN (  -- where $reason is given
            SELECT rollout_id FROM consumed_raw  -- where $reason is given
            WHERE $reason = 'trained' AND triplet_count > 0 AND outcome = 'updated'  -- where $reason is given
            UNION ALL SELECT rollout_id FROM reason_codes WHERE reason_code = $reason AND ($run::VARCHAR IS NULL OR run_id = $run)  -- where $reason is given
        ))  -- where $reason is given
        AND ($step::BIGINT IS NULL OR rollout_id IN (  -- where $step is given
            SELECT rollout_id FROM consumed_raw  -- where $step is given
            WHERE step = $step::BIGINT AND ($run::VARCHAR IS NULL OR run_id = $run)  -- where $step is given
        ))  -- where $step is given
        AND ($task::VARCHAR IS NULL OR md5(input_json) = $task)
        AND ($reward_min::DOUBLE IS NULL OR rollout_id IN (  -- where $reward_min is given
            SELECT rollout_id FROM trajectories_latest WHERE final AND reward >= $reward_min::DOUBLE AND ($run::VARCHAR IS NULL OR run_id = $run)  -- where $reward_min is given
        ))  -- where $reward_min is given
        AND ($reward_max::DOUBLE IS NULL OR rollout_id IN (  -- where $reward_max is given
            SELECT rollout_id FROM trajectories_latest WHERE final AND reward <= $reward_max::DOUBLE AND ($run::VARCHAR IS NULL OR run_id = $run)  -- where $reward_max is given
        ))  -- where $reward_max is given
        AND ($tool::VARCHAR IS NULL OR rollout_id IN (  -- where $tool is given
            SELECT rollout_id FROM tools WHERE tool_name = $tool AND ($run::VARCHAR IS NULL OR run_id = $run)  -- where $tool is given
        ))  -- where $tool is given
        AND ($error::VARCHAR IS NULL OR rollout_id IN (  -- where $error is given
            SELECT rollout_id FROM attempts  -- where $error is given
            WHERE ($run::VARCHAR IS NULL OR run_id = $run) AND contains(concat(error_type, ': ', error_message), $error)  -- where $error is given
            UNION ALL SELECT rollout_id FROM tools  -- where $error is given
            WHERE failed AND ($run::VARCHAR IS NULL OR run_id = $run) AND contains(concat(tool_name, ': ', error_type, ': ', error_message), $error)  -- where $error is given
            UNION ALL SELECT rollout_id FROM spans_raw WHERE contains(llm_error_message, $error)  -- where $error is given
                AND ($run::VARCHAR IS NULL OR rollout_id IN (SELECT rollout_id FROM rollouts_latest WHERE run_id = $run))  -- where $error is given
        ))  -- where $error is given
        AND ($sort_key::DOUBLE IS NULL OR (sort_key, enqueued_unix_nano, rollout_id) < ($sort_key::DOUBLE, $nanos::BIGINT, $id::VARCHAR))  -- where $sort_key is given
    ORDER BY
        sort_key DESC,  -- where $sort is given
        enqueued_unix_nano DESC, rollout_id DESC
    LIMIT $limit
)
SELECT
    page.* EXCLUDE (whole_input) REPLACE (page.enqueued_unix_nano::VARCHAR AS enqueued_unix_nano), md5(page.whole_input) AS task, made.reward, made.call_count,
    used.step, why.reason_code
    , if($whole::VARCHAR IS NULL AND length(said.answer) > 2000, concat(left(said.answer, 1999), '…'), said.answer) AS answer  -- where $answers is given
    , if($whole::VARCHAR IS NULL, left(said.tool_calls, 2000), said.tool_calls) AS tool_calls  -- where $answers is given
FROM page
LEFT JOIN (
    SELECT rollout_id, any_value(reward) AS reward, any_value(call_count) AS call_count
    FROM trajectories_latest
    WHERE final AND rollout_id IN (SELECT rollout_id FROM page)
    GROUP BY rollout_id
) AS made USING (rollout_id)
LEFT JOIN (
    SELECT rollout_id, max(step) AS step
    FROM consumed_raw
    WHERE triplet_count > 0 AND outcome = 'updated' AND rollout_id IN (SELECT rollout_id FROM page)
    GROUP BY rollout_id
) AS used USING (rollout_id)
LEFT JOIN (
    SELECT rollout_id, reason_code FROM reason_codes WHERE rollout_id IN (SELECT rollout_id FROM page)
) AS why USING (rollout_id)
LEFT JOIN (  -- where $answers is given
    SELECT rollout_id, said ->> '$.tool_calls' AS tool_calls, CASE  -- where $answers is given
        WHEN json_type(said) <> 'OBJECT' THEN said ->> '$'  -- where $answers is given
        WHEN json_type(said -> '$.content') = 'VARCHAR' THEN said ->> '$.content'  -- where $answers is given
        WHEN len(said ->> '$.content[*].text') > 0 THEN list_aggregate(said ->> '$.content[*].text', 'string_agg', chr(10))  -- where $answers is given
        WHEN (said ->> '$.content') IS NOT NULL THEN said ->> '$.content'  -- where $answers is given
        WHEN tool_calls IS NULL AND list_filter(json_keys(said), lambda one: one NOT IN ('role', 'content')) <> [] THEN said ->> '$'  -- where $answers is given
        ELSE ''  -- where $answers is given
    END AS answer  -- where $answers is given
    FROM (  -- where $answers is given
        SELECT rollout_id, if(json_valid(response_json), response_json::JSON, to_json(response_json)) AS said  -- where $answers is given
        FROM (  -- where $answers is given
            SELECT rollout_id, arg_max(llm_response_json, (start_unix_nano, log_offset)) AS response_json  -- where $answers is given
            FROM spans_raw WHERE $answers IS NOT NULL AND llm_choice_index IS NOT NULL  -- where $answers is given
                AND rollout_id IN (SELECT rollout_id FROM page) GROUP BY rollout_id  -- where $answers is given
        )  -- where $answers is given
    )  -- where $answers is given
) AS said USING (rollout_id)  -- where $answers is given
ORDER BY
    page.sort_key DESC,  -- where $sort is given
    page.enqueued_unix_nano DESC, page.rollout_id DESC
