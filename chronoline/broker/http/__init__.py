"""The broker's interface for HTTP and JSON; `docs/http.md` is its reference.

A request passes `server` (connections), `auth` (token), `body_limit` (size) and `app` (routing, JSON) on its
way to one of the modules `…_routes`. `requests` and `responses` are the schemas, `problems` the errors.
`poller` turns requests for messages into a consumer. `docs/design/edges.md` says why the broker serves HTTP
with uvicorn and the timers with aiohttp.
"""
