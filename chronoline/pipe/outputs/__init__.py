"""Where a pipe puts what has fallen due: one contract, and an engine each for Kafka and for our log."""
