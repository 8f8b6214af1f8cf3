"""Nodes: how one is put together from its parts, and several of them on this machine."""
