"""The bench `pipe`.

A `Side` stands between two Kafka topics: Chronoline's pipe (`node`), or the reference (`polling_queue`). In a
`Scene` an `agent` publishes to the input at a rate, and another one watches the output and does nothing else.
`jobs` are Spark jobs of users. A message's number is its key, which comes out again; its id contains it.
"""
