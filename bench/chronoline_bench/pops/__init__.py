"""What the bench `timers` is made of: each part is a process of its own, so that none borrows another's time.

- Nodes are started by the command, as users do (`chronoline.node.local_nodes`).
- An `agent` takes callbacks (`receiving`), asks for timers (`asking`), or is what nodes stand beside
  (`references`). Receiver and asker speak HTTP by hand, to cost as little as they can: they are not measured.
- The bench itself (`stage`) starts them, and matches afterwards what was asked for and what came (`passage`).

A timer is known by its number, which its opaque text begins with. Times are those of the machine's monotonic
clock, by which nodes wait too.
"""
