"""Parts that all processes share and that are no schemas: settings, clock, Kafka clients, HTTP server, services."""
