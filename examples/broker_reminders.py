"""A reminder service: people ask to be reminded, and a worker reminds each of them at their moment.

Start a broker first: `chronoline up`. Another one is named by CHRONOLINE_ADDRESS.
"""

from datetime import UTC, datetime, timedelta

from pydantic import BaseModel

from chronoline import Client, Lease, Worker

worker = Worker()
reminded = 0


class Reminder(BaseModel):
    user: str
    text: str


def remind_me(client: Client, user: str, text: str, at: datetime) -> None:
    # The caller sets the id, so that a second request moves the reminder instead of adding another.
    reminder = Reminder(user=user, text=text)
    client.send("example-reminders", reminder, id=f"{user}/{text}", due=at, if_exists="replace")


@worker.handler("example-reminders")
def remind(lease: Lease) -> None:
    global reminded  # noqa: PLW0603 - the example ends after the last reminder
    reminder = lease.model(Reminder)
    print(f"{reminder.user}: {reminder.text}, {lease.late_ms:.1f} ms late", flush=True)
    reminded += 1
    if reminded == 3:
        worker.stop()  # a service would go on until SIGTERM


with Client() as client:
    client.create_topic("example-reminders")
    now = datetime.now(UTC)  # a time without a zone would be refused
    remind_me(client, "ada", "the tea is ready", now + timedelta(seconds=1.5))
    remind_me(client, "ben", "call the bank", now + timedelta(seconds=1))
    remind_me(client, "cem", "stand up", now + timedelta(hours=1))
    remind_me(client, "cem", "stand up", now + timedelta(seconds=2))  # moved to an earlier time

worker.run()
