"""The domain: messages, leases and topics, and the rules for changing them.

Standard library only, no I/O, no clock: time, randomness and storage are arguments.

Time is whole milliseconds since 1970, UTC. A message is *available* when ``ts <= now``; a lease
moves ``ts`` to its own end and names the holder, so that a lease lapses by itself. Every change
adds one to ``version``, and a lease is named by (id, consumer, version): a stale holder is refused.
"""
