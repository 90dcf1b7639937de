"""Internal flags (core_internal_flags, lang_internal_flags of the catalogue, without a run)."""

from temporalio.api.sdk.v1 import WorkflowTaskCompletedMetadata

from perdure.core.run.flags import CoreFlag, InternalFlags


def test_the_first_completion_writes_every_known_core_flag() -> None:
    flags = InternalFlags(server_keeps_metadata=True)
    written = flags.metadata_of_completion("python", "1")
    assert list(written.core_used_flags) == [1, 2, 3, 4]
    assert (written.sdk_name, written.sdk_version) == ("python", "1")


def test_what_the_history_has_is_not_written_again() -> None:
    flags = InternalFlags(server_keeps_metadata=True)
    flags.seen(
        WorkflowTaskCompletedMetadata(
            core_used_flags=[1, 3], lang_used_flags=[1], sdk_name="python", sdk_version="1"
        )
    )
    flags.lang_used([1, 2])
    written = flags.metadata_of_completion("python", "2")
    assert list(written.core_used_flags) == [2, 4]
    assert list(written.lang_used_flags) == [2]
    assert (written.sdk_name, written.sdk_version) == ("", "2")
    assert flags.metadata_of_completion("python", "2") == WorkflowTaskCompletedMetadata()


def test_flags_of_lang_are_offered_in_order() -> None:
    flags = InternalFlags(server_keeps_metadata=True)
    flags.seen(WorkflowTaskCompletedMetadata(lang_used_flags=[7, 2]))
    flags.seen(WorkflowTaskCompletedMetadata(lang_used_flags=[5]))
    assert flags.lang_flags == [2, 5, 7]


def test_the_newest_version_that_is_not_empty_counts() -> None:
    flags = InternalFlags(server_keeps_metadata=True)
    flags.seen(WorkflowTaskCompletedMetadata(sdk_name="python", sdk_version="1"))
    flags.seen(WorkflowTaskCompletedMetadata(core_used_flags=[1]))
    assert flags.last_sdk_version == "1"
    assert not flags.metadata_of_completion("python", "2").sdk_name


def test_replay_uses_only_what_the_history_says() -> None:
    flags = InternalFlags(server_keeps_metadata=True)
    assert not flags.try_use(CoreFlag.MOVE_TERMINAL_COMMANDS, record=False)
    flags.seen(WorkflowTaskCompletedMetadata(core_used_flags=[3]))
    assert flags.try_use(CoreFlag.MOVE_TERMINAL_COMMANDS, record=False)
    assert not flags.try_use(CoreFlag.ID_AND_TYPE_CHECKS, record=False)


def test_what_was_used_live_stays_in_force() -> None:
    flags = InternalFlags(server_keeps_metadata=True)
    assert flags.try_use(CoreFlag.ID_AND_TYPE_CHECKS, record=True)
    assert flags.try_use(CoreFlag.ID_AND_TYPE_CHECKS, record=False)


def test_a_server_that_keeps_no_metadata() -> None:
    flags = InternalFlags(server_keeps_metadata=False)
    assert not flags.try_use(CoreFlag.ID_AND_TYPE_CHECKS, record=True)
    flags.lang_used([1])
    assert flags.metadata_of_completion("python", "1") == WorkflowTaskCompletedMetadata()
    flags.seen(WorkflowTaskCompletedMetadata(core_used_flags=[1]))
    assert flags.try_use(CoreFlag.ID_AND_TYPE_CHECKS, record=False)


def test_unknown_core_flags_are_ignored() -> None:
    flags = InternalFlags(server_keeps_metadata=True)
    flags.seen(WorkflowTaskCompletedMetadata(core_used_flags=[99]))
    assert list(flags.metadata_of_completion("", "").core_used_flags) == [1, 2, 3, 4]
