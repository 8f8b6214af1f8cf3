"""Coordination of brokers: sessions, entries, watches, and the typed layers over them.

`contract` is the specification, `factory` opens an engine by its URL. `docs/design/cluster.md` has the state
model and the reasons.
"""
