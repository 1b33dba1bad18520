-- Every check of every report of the gate; all of a report must pass.
-- Columns of `GateCheck` and `gate_reports`.
SELECT report_id, release, report.stable, report.candidate, outcome, error_rate, created_unix_nano, report.log_partition, report.log_offset, check_of.*
FROM (SELECT * EXCLUDE (checks), unnest(checks) AS check_of FROM gate_reports) AS report
