"""Topics that call a URL: each has a consumer inside the node, its target, and no other consumers.

For the loader of its topic a target is a consumer like any other, with credit, a share and leases. It posts
each message to the topic's URL at its due. 2xx acks the message; any other answer gives it back by `retry`,
later each time, and the last attempt buries it with the reason.

Bounds. The credit of a topic bounds its calls. It is half of the limit of one host, so that another topic at
the same host has its turns too. The node's `Caller` bounds the calls to one host and in all. A call whose
turn does not come in time is not begun, and its message is given back unchanged.

Leases last for a turn, a call and the time to settle, so none is extended. While the store is unavailable a
settlement is repeated until the lease is over; then the call is made again, here or at another node, and a
receiver can tell by its id.

Topics. The store's topics are read every few seconds, and at once when this node has created one. The target
of a deleted topic ends by itself. A stop waits a while for answers, and gives back the unanswered messages.
"""
