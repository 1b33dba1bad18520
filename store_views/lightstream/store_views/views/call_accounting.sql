-- Every LLM call has exactly one fate: made = in_triplets + dropped + pending, each counted by itself.
SELECT
    *,
    made = in_triplets + dropped + pending AND unaccounted = 0 AND counted_twice = 0 AS balanced
FROM (
    SELECT
        (SELECT count(*) FROM llm_calls) AS made,
        (SELECT count(*) FROM triplets) AS in_triplets,
        (SELECT count(*) FROM dropped WHERE is_llm_call) AS dropped,
        (SELECT count(*) FROM call_spans WHERE fate = 'pending') AS pending,
        (SELECT count(*) FROM call_spans WHERE fate = 'unaccounted') AS unaccounted,
        (SELECT count(*) FROM call_spans WHERE fates > 1) AS counted_twice
)
