"""The broker's interface for gRPC; `docs/protocol.md` is its reference."""
