"""The smallest algorithm, as a consumer of the topics alone: in plain confluent-kafka, and in Java (Consume.java)."""
