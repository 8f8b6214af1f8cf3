"""`chronoline log delete` and `chronoline log delete-group`."""

from __future__ import annotations

from chronoline.cli.client.options import Yes, confirm
from chronoline.cli.log.place import DEFAULT_FOLDER, GroupName, LogPlace, TopicName, open_log
from chronoline.cli.quantities import count_of
from chronoline.log import GroupNotFound


def delete(topic: TopicName, yes: Yes = False, place: LogPlace = DEFAULT_FOLDER) -> None:
    """Delete a topic, its events and the progress of its groups, for good.

    chronoline log delete orders

    Readers and writers are told. The name can be used again.
    """
    with open_log(place) as log:
        events = sum(head.next_sequence - head.first_sequence for head in log.heads(topic))
        what = f"topic {topic!r} with {count_of(events, 'event')}"
        confirm(f"Delete {what} for good?", yes=yes)
        log.delete_topic(topic)
    print(f"deleted {what}")


def delete_group(
    topic: TopicName, group: GroupName, yes: Yes = False, place: LogPlace = DEFAULT_FOLDER
) -> None:
    """Delete a group and its progress on a topic, for good.

    chronoline log delete-group orders billing

    Its readers are told. A group of that name that reads later begins with
    the first event.
    """
    with open_log(place) as log:
        found = [each for each in log.groups(topic) if each.group == group]
        if not found:
            raise GroupNotFound(f"no group named {group!r} reads {topic!r}")
        held = sum(each.holder is not None for each in found)
        what = f"group {group!r} of {topic!r}"
        question = f"Delete {what}, which holds {count_of(held, 'partition')}, for good?"
        confirm(question, yes=yes)
        log.delete_group(topic, group)
    print(f"deleted {what}")
