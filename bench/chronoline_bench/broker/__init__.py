"""The bench `broker`.

An `agent` produces or consumes over a `Line`: through the SDK, at beanstalkd, or at a table on PostgreSQL. A
`Target` is where the messages wait: a topic of a broker (`node`), a tube, or the table.
"""
