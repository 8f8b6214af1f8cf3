"""Real servers for tests and benchmarks: each is started with a `with` block and ended with it."""
