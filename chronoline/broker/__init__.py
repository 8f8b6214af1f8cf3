"""The broker: a service in front of a store, which pushes each message to one consumer at its due time.

State. The store has everything that must not be lost. A broker holds who is connected, which buckets are
dealt to whom, and what it has reserved and not pushed yet; all of that it can lose.

Threads. One event loop owns every structure here. The store is called by storage threads and by a few read
threads (`store_access`); one thread sleeps on the store's watch (`store_watch`). Their results come back to
the loop.

Layers, from the outside: `grpc` and `http` serve clients, `carrier` carries out their requests, `loader`
deals buckets and pushes, `store_access` calls the store.

Failures. An exception in one stream or loader is caught, counted, and that part starts anew. If the store
fails, changes are refused at once with when to try again, or answered as unknown; loaders try again by
themselves. If the broker dies, what it reserved lapses, and clients come back with their names.
"""
