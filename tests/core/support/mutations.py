"""Makes good messages bad: the faults of a broken server, a broken proxy or a broken lang.

`mutate` changes one field, anywhere in a message: it is cleared, or given a value nobody expects.
`break_history` does to a list of events what only happens to lists: events are lost, doubled, out
of order, or of a kind from the future.
"""

from __future__ import annotations

from random import Random
from typing import Any

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from temporalio.api.history.v1 import HistoryEvent

__all__ = ["break_history", "mutate"]

_INTEGERS = (0, 1, 2, 3, 7, 1000, 2**31 - 1)
_LONG = (*_INTEGERS, -1, 2**62)
_ENUM_FROM_THE_FUTURE = 4711

_SIGNED = {FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_INT64}


def mutate(random: Random, message: Message) -> None:
    """Change one field of the message, or of a message within it."""
    whole = list(_within(message))
    target = random.choice(whole)
    fields = list(target.DESCRIPTOR.fields)
    set_ones: list[Any] = [field for field, _ in target.ListFields()]
    pool: list[Any] = set_ones if set_ones and random.random() < 0.8 else fields
    if not pool:
        return
    field = random.choice(pool)
    if random.random() < 0.4:
        target.ClearField(field.name)
    elif field.is_repeated:
        _mutate_repeated(random, target, field)
    elif field.message_type is not None:
        getattr(target, field.name).SetInParent()
    else:
        setattr(target, field.name, _value(random, field))


def _within(message: Message) -> list[Message]:
    found = [message]
    for field, value in message.ListFields():
        if field.message_type is None:
            continue
        if field.message_type.GetOptions().map_entry:
            of_value = field.message_type.fields_by_name["value"]
            keys = sorted(value) if of_value.message_type is not None else []
            parts = [value[key] for key in keys]
        else:
            parts = list(value) if field.is_repeated else [value]
        for part in parts:
            found += _within(part)
    return found


def _mutate_repeated(random: Random, target: Any, field: Any) -> None:
    values = getattr(target, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        if values:
            key = random.choice(sorted(values))
            del values[key]
    elif field.message_type is None:
        values.append(_value(random, field))
    elif values and random.random() < 0.7:
        values.append(random.choice(list(values)))
    else:
        values.add()


def _value(random: Random, field: Any) -> Any:
    kind = field.cpp_type
    if kind == FieldDescriptor.CPPTYPE_BOOL:
        return random.random() < 0.5
    if kind == FieldDescriptor.CPPTYPE_ENUM:
        values = [value.number for value in field.enum_type.values]
        return random.choice([*values, _ENUM_FROM_THE_FUTURE])
    if kind in (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE):
        return random.choice([0.0, -1.0, 1e300, float("nan"), float("inf")])
    if kind == FieldDescriptor.CPPTYPE_STRING:
        if field.type == FieldDescriptor.TYPE_BYTES:
            return random.choice([b"", b"\xff\x00", b"{", b"null", b"[]", b'"x"', b"7"])
        return random.choice(["", "x", "nothing of the kind", "\x00"])
    narrow = kind in (FieldDescriptor.CPPTYPE_INT32, FieldDescriptor.CPPTYPE_UINT32)
    values = list(_INTEGERS if narrow else _LONG)
    return random.choice(values if kind in _SIGNED else [v for v in values if v >= 0])


def break_history(random: Random, events: list[HistoryEvent]) -> None:
    """Change the list in place; the events themselves are copied before they are changed."""
    if not events:
        return
    index = random.randrange(len(events))
    how = random.randrange(7)
    if how == 0:
        del events[index]
    elif how == 1:
        events.insert(index, events[index])
    elif how == 2:
        other = random.randrange(len(events))
        events[index], events[other] = events[other], events[index]
    elif how == 3:
        del events[index:]
    else:
        event = HistoryEvent()
        event.CopyFrom(events[index])
        if how == 4:
            event.ClearField(event.WhichOneof("attributes") or "event_time")
        elif how == 5:
            event.event_type = random.choice([0, 5000])  # type: ignore[assignment]
            event.worker_may_ignore = random.random() < 0.5
        else:
            mutate(random, event)
        events[index] = event
