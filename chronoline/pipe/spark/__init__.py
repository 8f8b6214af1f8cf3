"""The pipe on Spark: its session, its streaming queries, and the pipe that holds them."""
