"""Threads between callers and a store.

`lane` is the thread shell of `core.delivery`: it executes the commands of a delivery on the store. A
`firing_lane` calls a function for each due message; a `publishing_lane`, the body of a pipe's lane, serves a
window of time for an output that acknowledges later.

`storage_threads` collect the calls that arrive while a commit is under way into the next one, so that many
callers with one message each are served at the speed of batches.
"""
