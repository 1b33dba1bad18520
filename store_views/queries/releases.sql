-- Every release as it is now, with the outcome of the gate's report on its candidate or stable model.
SELECT
    state.release, state.revision, state.action, state.stable, state.candidate, state.previous, state.share, state.key,
    state.paused, len(state.rules) AS rules, state.by, state.reason, state.report_id, report.outcome AS report_outcome,
    state.offered_unix_nano::VARCHAR AS offered_unix_nano, state.changed_unix_nano::VARCHAR AS changed_unix_nano
FROM releases AS state
LEFT JOIN gate_reports AS report
    ON report.report_id = state.report_id AND report.candidate IN (state.stable, state.candidate)
ORDER BY state.release
