"""Threads between callers and a store.

`lane` is the thread shell of `core.delivery`: it carries out what a delivery asks of the store. A
`firing_lane` calls a function for each due message; a `publishing_lane`, the body of a pipe's lane, serves a
window of time for an output that acknowledges later.

`storage_threads` collect what arrives while a commit is under way into the next one, so that many callers
with one message each are served at the speed of batches.
"""
