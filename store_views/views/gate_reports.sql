-- Every report of the gate: a candidate of a release was compared with its stable model.
-- Columns of `gate_reports_raw`.
SELECT *
FROM gate_reports_raw
QUALIFY row_number() OVER (PARTITION BY report_id ORDER BY log_offset) = 1
