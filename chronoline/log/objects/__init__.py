"""Object engines: the storage of the log's bytes."""
