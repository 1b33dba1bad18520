-- Inputs of rollouts that nobody enqueued (they have no run), each once: a sample of the traffic. The order is that of a
-- hash, so that a greater limit only adds to it.
-- $agent = null: only of rollouts with a call of this agent.
-- $since_unix_nano = 0: only rollouts that were begun at this time or later.
-- $consent_key = null: only of rollouts whose metadata have, under this name, the text $consent_value.
-- $consent_value = null: see $consent_key.
-- $limit = 100: how many.
SELECT input_json, count(*) AS rollouts, max(enqueued_unix_nano) AS last_unix_nano
FROM rollouts
WHERE run_id = '' AND group_id IS NULL AND mode NOT IN ('val', 'test') AND input_json IS NOT NULL AND input_json <> 'null'
    AND enqueued_unix_nano >= $since_unix_nano
    AND ($agent IS NULL OR rollout_id IN (SELECT rollout_id FROM llm_calls WHERE agent_name = $agent))
    AND (
        $consent_key::VARCHAR IS NULL
        OR json_extract_string(metadata_json, '$."' || $consent_key || '"') IS NOT DISTINCT FROM $consent_value
    )
GROUP BY input_json
ORDER BY md5(input_json)
LIMIT $limit
