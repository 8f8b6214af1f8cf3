"""An effect that happens once, although its message may be served twice: the version fences the late holder.

Start a broker first: `chronoline up`. Another one is named by CHRONOLINE_ADDRESS.

A consumer freezes, its lease lapses, another does the work, the first wakes up and goes on. No broker can
prevent this. But a later holder of a message always has a greater version, so the database with the effect
can: it stores the highest version of each id, and refuses all lower ones.
"""

import logging
import sqlite3

from chronoline import Client, Refused

# The SDK warns of a lapsed lease; here it lapses on purpose.
logging.getLogger("chronoline").setLevel(logging.ERROR)
database = sqlite3.connect("accounts.db", isolation_level=None)
database.executescript(
    """
    CREATE TABLE IF NOT EXISTS accounts (name TEXT PRIMARY KEY, cents INTEGER NOT NULL);
    CREATE TABLE IF NOT EXISTS handled (
        id TEXT PRIMARY KEY, version INTEGER NOT NULL, done INTEGER NOT NULL DEFAULT 0
    );
    INSERT OR REPLACE INTO accounts VALUES ('ada', 0);
    """
)


def begin(message_id: str, version: int) -> bool:
    """Whether this holder may start: the work is not done, and no holder of a higher version has begun."""
    begun = database.execute(
        "INSERT INTO handled (id, version) VALUES (?1, ?2) ON CONFLICT (id) DO UPDATE"
        " SET version = ?2 WHERE NOT done AND version < ?2",
        (message_id, version),
    )
    return begun.rowcount == 1


def finish(message_id: str, version: int, account: str, cents: int) -> bool:
    """Write the effect and the mark in one transaction, if the version is still the highest."""
    database.execute("BEGIN IMMEDIATE")
    marked = database.execute(
        "UPDATE handled SET done = 1 WHERE id = ? AND version = ? AND NOT done",
        (message_id, version),
    )
    if marked.rowcount == 1:
        database.execute("UPDATE accounts SET cents = cents + ? WHERE name = ?", (cents, account))
    database.execute("COMMIT")
    return marked.rowcount == 1


with Client() as client:
    client.create_topic("credits")
    sent = client.send("credits", json={"account": "ada", "cents": 500})
    leases = client.consume("credits", lease=1)

    frozen = next(leases)
    version = frozen.version  # read once, at the beginning: an extension changes it
    print("first begins:", begin(sent, version))  # True
    # Here it freezes, past the end of its lease, and the message is served again.

    other = next(leases)
    print("second begins:", begin(sent, other.version))  # True
    print("second finishes:", finish(sent, other.version, **other.json()))  # True
    other.ack()

    # The first wakes up, and would credit the account once more.
    print("first finishes:", finish(sent, version, **frozen.json()))  # False
    try:
        frozen.ack()
    except Refused:
        print("first acks: refused")

    print(database.execute("SELECT cents FROM accounts").fetchone()[0])  # 500
