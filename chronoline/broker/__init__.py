"""The broker: a service in front of a store, which pushes each message to one consumer at its due time.

State. The store has everything that must not be lost. A broker holds the connections, the shares of buckets,
and the messages that it has reserved and not pushed yet; it can lose all of that.

Threads. One event loop owns every structure here. Storage threads and a few read threads (`store_access`)
call the store; one thread waits on the store's watch (`store_watch`). Their results come back to the loop.

Layers, from the outside: `grpc` and `http` serve clients, `carrier` carries out their requests, `loader`
deals buckets and pushes, `store_access` calls the store.

Failures. An exception in one stream or loader is caught, counted, and that part starts anew. If the store
fails, changes are refused at once with the time to try again, or answered as unknown; loaders try again by
themselves. If the broker dies, its reservations lapse, and clients reconnect under their names.
"""
