"""The pipe on Spark: its session, its streaming queries, and the `Pipe` that runs them."""
