"""The algorithm of seed 004 as it was published: what the pipe is measured against.

A node consumes the input topic and stores every message by an insert of its own, each a transaction. Every
100 ms it marks what has fallen due as readied by itself, publishes what the update returned, waits for the
acknowledgements, and deletes. A third thread looks every 500 ms for what others have held for too long, and
resets it. One table, as the seed describes it, with an index for each of the two questions.

Plain, and not slowed on purpose: statements are prepared, a poll takes everything that is due, all deletes of
a poll are one statement, and consumed offsets are committed in the background. Where it differs from the
seed: the timing advance is 0 instead of 50 ms, as ours is, since with 50 half of the messages would be early.
"""

from chronoline_bench.published.node import Node, NodeSettings, create_table

__all__ = ["Node", "NodeSettings", "create_table"]
