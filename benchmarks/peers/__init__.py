"""The view beside Arize Phoenix and MLflow: the same spans, the same browser."""
