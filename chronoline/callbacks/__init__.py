"""Calls to external HTTP servers: bounded, guarded, signed.

`Caller` makes a bounded number of calls at a time to each server, so that a slow one delays no other. It
looks up the name for every call, checks each address by the `AddressGuard`, and connects to the checked
address, so that a later change of the name has no effect. It follows no redirects. Only 2xx is success.

The client is aiohttp's; `docs/design/edges.md` describes the two HTTP stacks.
"""
