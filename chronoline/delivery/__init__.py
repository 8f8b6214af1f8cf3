"""Threads between callers and a store.

`storage_threads` collect what arrives while a commit is under way into the next one, so that many callers
with one message each are served at the speed of batches.

`firing`: a firing lane serves the due messages of some buckets at their millisecond: one thread reserves
ahead and deletes in batches, another delivers, and an agenda tells both when.

`publishing`: a publishing lane, the body of a pipe's lane, does the same for a window of time and for an
output that acknowledges later.

Both kinds keep what they reserved in a `holding`, which says to the store what became of it.
"""
