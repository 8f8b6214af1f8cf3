"""Django: a message is scheduled when the transaction has committed, and not if it rolls back.

Start a broker first: `chronoline up`. Another one is named by CHRONOLINE_ADDRESS. Needs `pip install django`.

If the process dies between the commit and the send, the message is missing. If that is not acceptable, write
it in the same transaction: examples/postgres_outbox.py.
"""

import django  # type: ignore[import-not-found, import-untyped, unused-ignore]  # it may be missing
from django.conf import settings  # type: ignore[import-not-found, import-untyped, unused-ignore]
from django.db import (  # type: ignore[import-not-found, import-untyped, unused-ignore]
    connection,
    transaction,
)

from chronoline import Client

settings.configure(  # a project has its own
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
)
django.setup()

# One client for the process. With a server that forks, make it in each worker, not before the fork.
client = Client()
client.create_topic("welcomes")


def sign_up(name: str) -> None:
    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO users VALUES (%s)", [name])
    # The caller sets the id, so that a repeated request sends one greeting.
    transaction.on_commit(
        lambda: client.send(
            "welcomes", json=name, id=f"welcome-{name}", delay=3_600, if_exists="replace"
        )
    )


with connection.cursor() as cursor:
    cursor.execute("CREATE TABLE users (name TEXT PRIMARY KEY)")

with transaction.atomic():
    sign_up("ada")
    print("before the commit:", client.lookup("welcomes", "welcome-ada"))  # None
found = client.lookup("welcomes", "welcome-ada")
print("after the commit:", found and found.id)  # welcome-ada

try:
    with transaction.atomic():
        sign_up("ben")
        raise RuntimeError("the payment was declined")
except RuntimeError as error:
    print("rolled back:", error)
print(client.lookup("welcomes", "welcome-ben"))  # None

client.cancel("welcomes", "welcome-ada")
client.close()
