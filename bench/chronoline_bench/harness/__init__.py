"""The harness of the benches `broker`, `pipe` and `timers`.

- `agent`: a helper process that carries out commands: it sends, consumes, or runs a system under test. Every
  part of a measurement is a process of its own, so none borrows another's time.
- `passage`: which message was due when, which came when, and what follows from it: lateness and tally.
- `stage`: the folder, servers and agents of a run, which all end with it.

A message is known by its number, which comes back with it. All times of a run are of one clock.
"""
