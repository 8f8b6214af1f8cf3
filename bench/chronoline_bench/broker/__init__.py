"""The bench `broker`.

An `agent` produces or consumes over a `Line`: through the SDK, at beanstalkd, or at a table on PostgreSQL. A
`Target` holds the waiting messages: a topic of a broker (`node`), a tube, or the table.
"""
