"""Tags: what they may be, how they are compared, and their canonical form. Pure.

`1`, `"1"` and `True` are three different values, though Python calls two of them equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, TypeAlias

from perdure.errors import LimitExceeded, PayloadError

__all__ = [
    "TAGS_KEPT",
    "TAG_KEY_BYTES",
    "TAG_VALUE_BYTES",
    "TagMapping",
    "TagValue",
    "Tags",
    "canonical_tags",
    "same_tag",
]

TagValue: TypeAlias = str | int | bool

TagMapping: TypeAlias = Mapping[str, TagValue]
"""Tags as callers give them."""

Tags: TypeAlias = dict[str, TagValue]
"""Tags as they are stored: checked, and sorted by key."""

TAGS_KEPT: Final = 32
TAG_KEY_BYTES: Final = 128
TAG_VALUE_BYTES: Final = 1_024


def canonical_tags(tags: TagMapping | None) -> Tags:
    """The tags sorted by key, once checked.

    Raises `LimitExceeded` for too many tags or a key or value that is too long (in UTF-8 bytes),
    `PayloadError` for a value of another type than str, int (of 64 bits) or bool.
    """
    if not tags:
        return {}
    if len(tags) > TAGS_KEPT:
        raise LimitExceeded("the number of tags", len(tags), TAGS_KEPT, "keep data in the input")
    for key, value in tags.items():
        _check_text(key, f"$.{key}", "the key of a tag in bytes", TAG_KEY_BYTES)
        if isinstance(value, str):
            _check_text(value, f"$.{key}", f"tag {key!r} in bytes", TAG_VALUE_BYTES)
        elif not isinstance(value, int):
            raise PayloadError(
                f"$.{key}", f"a tag is a str, an int or a bool, not a {type(value).__name__}"
            )
        elif not -(1 << 63) <= value < 1 << 63:
            raise PayloadError(f"$.{key}", "an integer tag has at most 64 bits: use a str")
    return {key: tags[key] for key in sorted(tags)}


def _check_text(text: object, path: str, what: str, limit: int) -> None:
    if not isinstance(text, str):
        raise PayloadError(path, f"the key of a tag is a str, not a {type(text).__name__}")
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise PayloadError(path, f"the text is not valid Unicode: {error.reason}") from error
    if size > limit:
        raise LimitExceeded(what, size, limit, "tags are for finding, keep data in the input")


def same_tag(tags: Tags, name: str, value: TagValue) -> bool:
    """Whether the tag has this very value: 1 and True are equal to Python and different here."""
    return name in tags and type(tags[name]) is type(value) and tags[name] == value
