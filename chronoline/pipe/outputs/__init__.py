"""The output topics of a pipe: one contract, with implementations for Kafka and for the log."""
