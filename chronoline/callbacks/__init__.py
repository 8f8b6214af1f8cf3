"""Calls to other people's HTTP servers: bounded, guarded, signed.

`Caller` makes them: so many at a time for each server, so that a slow one delays nobody else. A name is
looked up for every call, each address is held against the `Guard`, and the connection goes to that very
address: a name that points elsewhere a moment later gets nowhere. Redirects are not followed. Only 2xx is
success.
"""
