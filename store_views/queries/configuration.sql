-- What a run is made with, a row for each setting, the options of its algorithm singly; beside those of another run, and
-- whether the two differ.
-- $run: the run.
-- $other: the run that it is compared with.
WITH noted AS (
    SELECT run_id, made_with::VARCHAR AS made_with, 0 AS place, log_offset FROM resources
    UNION ALL
    SELECT run_id, made_with::VARCHAR, 1, log_offset FROM training_steps
), made AS (
    SELECT run_id, CAST(arg_min(made_with, (place, log_offset))::JSON AS MAP(VARCHAR, VARCHAR)) AS settings
    FROM noted
    WHERE run_id IN ($run, $other) AND made_with <> '{}' AND json_valid(made_with)
    GROUP BY run_id
), entry AS (
    SELECT run_id, unnest(map_entries(settings)) AS item FROM made
), setting AS (
    SELECT run_id, item.key AS name, item.value AS value FROM entry WHERE item.key <> 'options'
    UNION ALL
    SELECT run_id, option.key, option.value ->> '$'
    FROM (
        SELECT run_id, unnest(map_entries(CAST(item.value::JSON AS MAP(VARCHAR, JSON)))) AS option
        FROM entry WHERE item.key = 'options' AND json_valid(item.value)
    )
    WHERE (run_id, option.key) NOT IN (SELECT (run_id, item.key) FROM entry)
)
SELECT name, value, other_value, $other::VARCHAR IS NOT NULL AND value IS DISTINCT FROM other_value AS differs
FROM (
    SELECT name, any_value(value) FILTER (run_id = $run) AS value, any_value(value) FILTER (run_id = $other) AS other_value
    FROM setting
    GROUP BY name
)
ORDER BY differs DESC, name
