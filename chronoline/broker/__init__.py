"""The broker: a service in front of a store, which pushes each message to one consumer at its due time.

State. The store has everything that must not be lost. A broker holds who is connected, which buckets are
dealt to whom, and what it has reserved and not pushed yet; all of that it can lose.

Threads. One event loop owns every structure here. The store is called by storage threads and by a few threads
that only look (`access`); one thread sleeps on the store's watch (`noticing`). What they find comes back to
the loop.

From the edge inwards: `grpc` and `http` speak with clients, `carrier` does what they ask for, `loading` deals
and pushes, `access` is the store.

Failures. An exception in one stream or loader is caught, counted, and that part starts anew. If the store
fails, changes are refused at once with when to try again, or answered as unknown; loaders try again by
themselves. If the broker dies, what it reserved lapses, and clients come back with their names.
"""
