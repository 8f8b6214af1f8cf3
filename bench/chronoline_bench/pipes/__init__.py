"""What the bench `pipe` is made of: every part is a process of its own, so that none borrows another's time.

- `loader` publishes to the input topic at a rate, and leaves a file: which number was due when.
- `watcher` reads the output topic and does nothing else: a file says which number came when.
- `pipe_node`, or a node of the published algorithm (`chronoline_bench.published`), stands between them.
- `jobs` are Spark jobs of a user's: writing a DataFrame to a timeline, and reading a forecast.
- The bench itself (`scene`) starts them, waits for files to grow, and matches them afterwards (`passage`).

A message is known by its number, which is its key and thus comes out again; its id is made of it. Times are
those of the machine's one clock.
"""
