"""Leased messages for agendas, with only the fields that an agenda reads."""

from chronoline.core.message import Header, Lease, LeasedMessage, Message


def leased(
    message_id: str,
    *,
    due: int,
    until: int | None = None,
    expires: int | None = None,
    body: bytes | None = b"",
    key: bytes | None = None,
    headers: tuple[Header, ...] = (),
) -> LeasedMessage:
    until = due + 1_000 if until is None else until
    message = Message(
        id=message_id,
        ts=until,
        due=due,
        bucket=0,
        producer_group="owners",
        lock_consumer="c",
        version=2,
        attempts=0,
        expires=expires,
        key=key,
        headers=headers,
    )
    lease = Lease(id=message_id, consumer="c", version=2, until=until, since=2)
    return LeasedMessage(lease=lease, message=message, body=body, redelivered=False)


def ids(messages: list[LeasedMessage]) -> list[str]:
    return [each.lease.id for each in messages]
