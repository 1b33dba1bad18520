-- Every table and view, with its columns.
SELECT table_name, column_name FROM duckdb_columns() WHERE NOT internal AND schema_name = 'main'
ORDER BY table_name, column_index
