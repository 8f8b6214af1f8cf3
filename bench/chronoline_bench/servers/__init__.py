"""Real servers for tests and benchmarks: each runs within a `with` block."""
