"""Object engines: where the bytes of the log lie."""
