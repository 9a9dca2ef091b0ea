"""Enums whose members are attributes, whatever the version of Python."""

import pickle

from topics.model.config import Durability


def test_a_member_is_found_without_a_call_and_is_the_same_as_ever() -> None:
    assert vars(Durability)["DISK"] is Durability("disk") is Durability["DISK"] is Durability.DISK
    assert [member.name for member in Durability] == ["EPHEMERAL", "MEMORY", "DISK", "FSYNC"]
    assert pickle.loads(pickle.dumps(Durability.DISK)) is Durability.DISK
