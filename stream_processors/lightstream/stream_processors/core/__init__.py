"""Pure decisions: life cycle, assembly, rewards, credit. Imports only the schemas; knows no Kafka and no clock."""
