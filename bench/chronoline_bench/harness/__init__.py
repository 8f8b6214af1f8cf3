"""The harness of the benches `broker`, `pipe` and `timers`.

- `agent`: a helper process that executes commands: it sends, consumes, or runs a system under test. Every
  part of a measurement is a process of its own, so none takes CPU time from another.
- `passage`: the due times and arrivals of messages, and their lateness and tally.
- `stage`: the folder, servers and agents of a run, which end with it.

A message is identified by its number, which it carries. All times of a run are of one clock.
"""
