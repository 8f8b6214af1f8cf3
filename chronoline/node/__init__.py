"""Nodes: the composition of one from its parts, and several of them on this machine."""
