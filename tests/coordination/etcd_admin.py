"""Administration of the etcd of a test: compaction, the leader, users."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
from aetcd import rpc

from chronoline.testing.etcd import EtcdServer

_PATIENCE_S = 30


@asynccontextmanager
async def admin_channel(
    server: EtcdServer, ca: Path | None = None, key: Path | None = None
) -> AsyncIterator[grpc.aio.Channel]:
    if ca is None:
        channel = grpc.aio.insecure_channel(server.address)
    else:
        shown = (None, None) if key is None else (key.read_bytes(), ca.read_bytes())
        credentials = grpc.ssl_channel_credentials(ca.read_bytes(), *shown)
        channel = grpc.aio.secure_channel(server.address, credentials)
    async with channel:
        await channel.channel_ready()
        yield channel


async def compact(server: EtcdServer, revision: int) -> None:
    """Removes the history before this revision."""
    async with admin_channel(server) as channel:
        request = rpc.CompactionRequest(revision=revision, physical=True)
        await rpc.KVStub(channel).Compact(request, timeout=_PATIENCE_S)


async def make_room(server: EtcdServer) -> None:
    """Removes the history, gives its space back, and lifts the alarm that the space is used up."""
    async with admin_channel(server) as channel:
        read = await rpc.KVStub(channel).Range(rpc.RangeRequest(key=b"x"), timeout=_PATIENCE_S)
        await compact(server, read.header.revision)
        maintenance = rpc.MaintenanceStub(channel)
        await maintenance.Defragment(rpc.DefragmentRequest(), timeout=_PATIENCE_S)
        for member in (await maintenance.Alarm(rpc.AlarmRequest(), timeout=_PATIENCE_S)).alarms:
            off = rpc.AlarmRequest(
                action=rpc.AlarmRequest.DEACTIVATE, memberID=member.memberID, alarm=member.alarm
            )
            await maintenance.Alarm(off, timeout=_PATIENCE_S)


async def leader_of(members: Sequence[EtcdServer]) -> EtcdServer:
    """The member that leads the others."""
    for member in members:
        async with admin_channel(member) as channel:
            stub = rpc.MaintenanceStub(channel)
            status = await stub.Status(rpc.StatusRequest(), timeout=_PATIENCE_S)
            if status.leader == status.header.member_id:
                return member
    raise AssertionError("no member leads")


async def enable_auth(server: EtcdServer, ca: Path, key: Path, password: str) -> None:
    """From now on root may use it, and "reader" may read below guarded/, both with this password.

    `ca` is its own authority, and is shown as the certificate of the client too.
    """
    async with admin_channel(server, ca, key) as channel:
        auth = rpc.AuthStub(channel)
        await auth.UserAdd(rpc.AuthUserAddRequest(name="root", password=password))
        await auth.RoleAdd(rpc.AuthRoleAddRequest(name="root"))
        await auth.UserGrantRole(rpc.AuthUserGrantRoleRequest(user="root", role="root"))
        below = {"key": b"guarded/", "range_end": b"guarded0"}
        may_read = rpc.Permission(permType=rpc.Permission.READ, **below)
        await auth.UserAdd(rpc.AuthUserAddRequest(name="reader", password=password))
        await auth.RoleAdd(rpc.AuthRoleAddRequest(name="reader"))
        await auth.RoleGrantPermission(
            rpc.AuthRoleGrantPermissionRequest(name="reader", perm=may_read)
        )
        await auth.UserGrantRole(rpc.AuthUserGrantRoleRequest(user="reader", role="reader"))
        await auth.AuthEnable(rpc.AuthEnableRequest())
