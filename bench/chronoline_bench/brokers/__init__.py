"""What the bench `broker` is made of: each part is a process of its own, so that none borrows another's time.

- `node` is a broker, on SQLite or on PostgreSQL.
- An `agent` produces or consumes what it is told to: through the SDK (`sdk`), at beanstalkd (`beanstalk`) or
  at a table on PostgreSQL (`skip_locked`). All three are a `Line`, so that all do the same work.
- The bench itself (`stage`) starts them on a `target`, and matches afterwards what was put and what came
  (`passage`).

A message is known by its number, of which its id is made. Times are those of the machine's one clock.
"""
