"""The bench `timers`.

Nodes are started by the command, as users do. An `agent` asks for timers, or takes their callbacks
(`requests`), or is a reference beside the nodes (`references`).
"""
