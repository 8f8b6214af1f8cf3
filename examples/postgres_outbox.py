"""A message that exists exactly if the business transaction commits.

Run it with the URL of a PostgreSQL database: python examples/postgres_outbox.py postgresql://…
"""

import sys

import psycopg

from chronoline.store import NewMessage, SystemClock
from chronoline.stores.postgres import PostgresStore

if len(sys.argv) != 2:
    sys.exit(__doc__)
url = sys.argv[1]
now = SystemClock().now_ms()
tomorrow = now + 86_400_000

with PostgresStore(url) as store, psycopg.connect(url) as connection:
    topic = store.ensure_topic("welcome", now_ms=now)
    connection.execute("CREATE TABLE IF NOT EXISTS users (name text)")
    connection.commit()

    # From Python, on the connection of the business transaction.
    with connection.transaction():
        connection.execute("INSERT INTO users VALUES ('ada')")
        mail = NewMessage(id="welcome-ada", due=tomorrow, body=b"Welcome, Ada!")
        store.create_in(connection, topic.uid, [mail], now_ms=now)

    # From SQL, in any language. This transaction fails, so no welcome is sent.
    try:
        with connection.transaction():
            connection.execute("INSERT INTO users VALUES ('bob')")
            connection.execute(
                "SELECT chronoline.send('welcome', 'welcome-bob', %s, 'Welcome, Bob!', %s)",
                [tomorrow, now],
            )
            raise RuntimeError("the payment was declined")
    except RuntimeError as error:
        print(f"rolled back: {error}")

    print(sorted(store.lookup(topic.uid, ["welcome-ada", "welcome-bob"])))  # ['welcome-ada']
