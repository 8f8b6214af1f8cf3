"""The broker's edge for gRPC: `docs/protocol.md` says how it is spoken."""
