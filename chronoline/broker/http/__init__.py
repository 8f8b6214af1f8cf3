"""The broker's edge for HTTP and JSON: `docs/http.md` says how it is spoken.

From outside inwards: `connections` takes bytes, `guarding` lets requests in and bounds what is read of them,
`reading` is strict about JSON, `asking` and `telling` are the shapes of requests and answers. Then one module
for each kind of work. `polling` makes a consumer of someone who only asks now and then.
"""
