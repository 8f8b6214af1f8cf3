"""Put a message on a timeline, get it back at its millisecond."""

from chronoline.clock import Clock, SystemClock
from chronoline.core.errors import ChronolineError
from chronoline.core.message import DeadLetter, Lease, LeasedMessage, Message, NewMessage
from chronoline.core.outcome import Grant, Outcome, Refusal, raise_for_refused
from chronoline.core.ranges import BucketRange
from chronoline.core.topic import Topic, TopicSettings
from chronoline.stores.contract import Store
from chronoline.stores.opening import open_store

__version__ = "0.1.0"

__all__ = [
    "BucketRange",
    "ChronolineError",
    "Clock",
    "DeadLetter",
    "Grant",
    "Lease",
    "LeasedMessage",
    "Message",
    "NewMessage",
    "Outcome",
    "Refusal",
    "Store",
    "SystemClock",
    "Topic",
    "TopicSettings",
    "open_store",
    "raise_for_refused",
]
