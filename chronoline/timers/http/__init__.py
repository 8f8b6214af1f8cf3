"""The HTTP interface of a timer node: for clients, as in Metaswitch Chronos, for nodes, and for operators.

It is served by aiohttp, and the broker's by uvicorn; `docs/design/edges.md` says why.
"""
