"""What every part shares: records, topics, codec, settings, errors, clock, Kafka clients and interfaces."""
