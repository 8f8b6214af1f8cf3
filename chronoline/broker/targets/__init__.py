"""Topics that call a URL: each has a consumer inside the node, its target, instead of others.

For the loader of its topic a target is a consumer like any other: it has credit, a share and leases, so what
holds for those holds here. What it is pushed at its due is posted to the topic's URL. 2xx acks; everything
else gives the message back by `retry`, later each time, and the last attempt buries it with the reason.

Bounds. A topic has so many calls under way as its credit, which is half of what one host may have: another
topic at the same host has its turns too. The `Caller`, which is the node's own, bounds calls to one host and
in all. A call whose turn does not come in time was not begun, and its message is given back as it was.

Leases last for a turn, a call and a while to settle, so none is extended. What cannot be settled, since the
store is away, is said again until the lease is over; then the message is called with again, by whoever has
it: a receiver can tell by its id.

Who is served. The store's topics are looked at now and then, and at once when this node has made one. A
topic that was dropped ends by itself. A stop waits a while for answers, and gives back what has none.
"""
