-- The LLM calls of a rollout as one conversation, one attempt after the other: of each call only the messages that the longest earlier call of the same
-- agent, with which it begins, did not have, and the answer (role `answer`). Of a text of more than 20,000 characters the begin
-- and the end are given. `continued_span_id` is that earlier call; `continues` is false where an agent's later call begins with
-- none. At most 5,000 messages are given; `left_out` is how many more there are.
-- $rollout: the rollout.
-- $span: only this call, with all its messages, and the tools that it was offered.
WITH call AS (
    SELECT span_id, attempt_id, start_unix_nano, log_partition, log_offset,
        coalesce(nullif(made.agent_name, 'agent'), nullif(spans.agent_name, 'agent'), '') AS agent_name, llm_error_message AS error,
        if(json_valid(llm_request_json), llm_request_json::JSON, to_json(llm_request_json)) AS request,
        if(json_valid(llm_response_json), llm_response_json::JSON, to_json(llm_response_json)) AS response
    FROM spans
    LEFT JOIN (
        SELECT log_partition, log_offset, any_value(agent_name) AS agent_name FROM call_spans WHERE rollout_id = $rollout GROUP BY ALL
    ) AS made USING (log_partition, log_offset)
    WHERE rollout_id = $rollout AND ($span::VARCHAR IS NULL OR span_id = $span) AND is_llm_call
        AND (llm_request_json IS NOT NULL OR llm_response_json IS NOT NULL)
), listed AS MATERIALIZED (
    SELECT *, coalesce(request -> '$.messages', request -> '$.input', request) AS asked,
        if(json_type(asked) = 'ARRAY', json_extract(asked, '$[*]'), [asked]) AS messages,
        coalesce(request -> '$.system', request -> '$.instructions') AS instructions,
        row_number() OVER earlier AS number
    FROM call
    WINDOW earlier AS (PARTITION BY attempt_id, agent_name ORDER BY start_unix_nano, log_offset)
), begun AS (  -- each begin of each call's messages, told by the sum of their hashes
    SELECT * EXCLUDE (message), sum(md5_number_upper(concat(size, ' ', message))) OVER (
        PARTITION BY log_partition, log_offset ORDER BY size
    ) AS identity
    FROM (
        SELECT log_partition, log_offset, attempt_id, agent_name, number, span_id, md5_number_upper(coalesce(instructions::VARCHAR, '')) AS instructions,
            len(messages) AS sizes, unnest(messages)::VARCHAR AS message, generate_subscripts(messages, 1) AS size
        FROM listed
    )
), follows AS (
    SELECT later.log_partition, later.log_offset, max(later.size) AS known,
        arg_max(earlier.span_id, (later.size, earlier.number)) AS continued_span_id
    FROM begun AS later
    JOIN (SELECT * FROM begun WHERE size = sizes) AS earlier
        ON earlier.attempt_id IS NOT DISTINCT FROM later.attempt_id AND earlier.agent_name = later.agent_name
            AND earlier.instructions = later.instructions AND earlier.size = later.size
            AND earlier.identity = later.identity AND earlier.number < later.number
    GROUP BY ALL
), continued AS (
    SELECT listed.*, follows.continued_span_id, coalesce(follows.known, 0) AS known,
        follows.known IS NOT NULL OR listed.number = 1 AS continues
    FROM listed LEFT JOIN follows USING (log_partition, log_offset)
), turn AS (
    SELECT log_partition, log_offset, -1 AS place, 'system' AS role, instructions AS message
    FROM continued WHERE instructions IS NOT NULL AND known = 0
    UNION ALL
    SELECT log_partition, log_offset, -2, 'tools', request -> '$.tools'
    FROM continued WHERE $span::VARCHAR IS NOT NULL AND (request -> '$.tools') IS NOT NULL
    UNION ALL
    SELECT log_partition, log_offset, place, NULL, message
    FROM (
        SELECT log_partition, log_offset, unnest(messages[known + 1:]) AS message,
            generate_subscripts(messages[known + 1:], 1) AS place
        FROM continued
    )
    WHERE message IS NOT NULL
    UNION ALL
    SELECT log_partition, log_offset, 1000000, 'answer', response FROM continued WHERE response IS NOT NULL
), told AS (
    SELECT log_partition, log_offset, place, message,
        coalesce(role, message ->> '$.role', message ->> '$.type', if(json_type(message) = 'VARCHAR', 'user', 'message')) AS role,
        coalesce(message -> '$.content', message -> '$.output') AS content,
        CASE
            WHEN json_type(message) = 'VARCHAR' THEN message ->> '$'
            WHEN json_type(content) = 'VARCHAR' THEN content ->> '$'
            WHEN json_type(content) = 'ARRAY' AND len((content ->> '$[*].text')) > 0
                THEN list_aggregate(content ->> '$[*].text', 'string_agg', chr(10))
            WHEN json_type(content) <> 'NULL' THEN content::VARCHAR
            WHEN coalesce(message -> '$.role', message -> '$.tool_calls', message -> '$.arguments') IS NULL
                THEN message::VARCHAR
            ELSE ''
        END AS text
    FROM turn
), made AS (
    SELECT attempt_id, span_id, any_value(call_index) AS call_index, any_value(reward) AS reward,
        any_value(policy_version) AS policy_version, sum(list_sum(response_mask))::BIGINT AS sampled,
        sum(len(response_token_ids))::BIGINT AS response_tokens
    FROM triplets WHERE rollout_id = $rollout GROUP BY attempt_id, span_id
)
SELECT continued.attempt_id, continued.span_id, continued.agent_name, continued.continues, continued.continued_span_id, continued.error, made.call_index, made.reward,
    made.policy_version, made.sampled, made.response_tokens, told.place, told.role,
    if(
        length(told.text) > 20000,
        concat(left(told.text, 12000), chr(10), '[… ', length(told.text) - 19900, ' characters …]', chr(10), right(told.text, 7900)),
        told.text
    ) AS text,
    length(told.text) AS characters, told.message ->> '$.reasoning_content' AS reasoning,
    left(coalesce(
        told.message ->> '$.tool_calls', if((told.message -> '$.arguments') IS NULL, NULL, json_array(told.message)::VARCHAR)
    ), 20000) AS tool_calls,
    coalesce(told.message ->> '$.tool_call_id', told.message ->> '$.call_id') AS tool_call_id,
    greatest(count(*) OVER () - 5000, 0) AS left_out
FROM continued
LEFT JOIN told USING (log_partition, log_offset)
LEFT JOIN made ON made.span_id = continued.span_id AND made.attempt_id = continued.attempt_id
ORDER BY min(continued.start_unix_nano) OVER (PARTITION BY continued.attempt_id), continued.attempt_id,
    continued.start_unix_nano, continued.log_offset, told.place
LIMIT 5000
