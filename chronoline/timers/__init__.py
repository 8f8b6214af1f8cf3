"""Timers over HTTP, kept by several nodes without a database.

A client asks any node for a timer. The node finds by hashing which nodes keep it, gives the record a version,
and answers once it is on the disks of those that can be reached. Each of them waits for the due time, the
later ones a little longer; the node that pops it tells the others. `replica` decides all that without clock,
network or disk; `node` is the shell around it; `membership`, `scaling_rules` and `resync` place timers when
nodes come and go; `startup_sync` brings a starting node up to date; `journal` is its disk.
"""
