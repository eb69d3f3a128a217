"""The order API, its store with the outbox, and the relay to Kafka."""
