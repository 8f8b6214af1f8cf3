"""Timers over HTTP, kept by several nodes without a database.

A client asks any node for a timer. The node finds by hashing which nodes keep it, gives the record a version,
and answers once it is on the disks of those that can be reached. Each of them waits for the due time, the
later ones a little longer; whoever pops it tells the others. `replica` decides all that without clock,
network or disk; `node` is the shell around it; `membership`, `rules` and `resyncing` say who keeps what when
nodes come and go; `syncing` brings a node that starts up to date; `journal` is its disk.
"""
