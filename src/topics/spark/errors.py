"""What can go wrong between Spark and a topic."""

from topics.errors import TopicsError


class InvalidOption(TopicsError):
    """An option is unknown, missing, malformed, or contradicts another one. The message names it."""

    def __init__(self, option: str, problem: str) -> None:
        super().__init__(f"option {option}: {problem}", option=option)


class InvalidColumns(TopicsError):
    """The columns of a DataFrame, or a value in one, cannot be written to a topic. The message says what to select."""


class MalformedRecord(TopicsError):
    """A payload does not fit the schema, and `mode` is FAILFAST. Correct the schema, or choose another mode:
    PERMISSIVE gives null where a value does not fit, DROPMALFORMED leaves such records out."""

    def __init__(self, topic: str, seq: int, problem: str) -> None:
        super().__init__(
            f'seq {seq} of topic "{topic}" is malformed: {problem}; correct the schema, or set mode to PERMISSIVE or '
            "DROPMALFORMED",
            topic=topic,
            seq=seq,
        )


class DataLoss(TopicsError):
    """Records that this query needs are gone. To go on without them, set `onDataLoss` to `warn` (the loss is logged) or
    `rows` (the loss is a row)."""

    def __init__(self, topic: str, gap_from: int, gap_to: int | None, reason: str) -> None:
        what = f"from seq {gap_from} on" if gap_to is None else f"seqs {gap_from} to {gap_to}"
        super().__init__(
            f'{what} of topic "{topic}" cannot be read any more (reason: {reason}); '
            "set onDataLoss to warn or rows to go on without them",
            topic=topic,
            gap_from=gap_from,
            gap_to=gap_to,
            reason=reason,
        )


class FilesBehind(TopicsError):
    """The files do not yet have everything that was planned: the offsets come from a server that is ahead of its files,
    or the files are an older copy. Run again in a moment, or read newer files."""

    def __init__(self, topic: str, head_seq: int, end: int) -> None:
        super().__init__(f'the files of topic "{topic}" end at seq {head_seq}, before {end}', topic=topic)


class TopicChangedDuringRead(TopicsError):
    """The topic was deleted and recreated while a task read it, so its rows may come from either. The task fails;
    when it runs again, it sees the change from the start and reports it as a loss."""

    def __init__(self, topic: str) -> None:
        super().__init__(f'topic "{topic}" was recreated while it was read; run again', topic=topic)


class ReplayDiffers(TopicsError):
    """A batch was written again with different records, so the server cannot recognise it as the same. Make the query
    deterministic (no unordered shuffles, random values or changed partitioning), or, if records were deleted meanwhile,
    start with a new checkpoint after what was written."""

    def __init__(self, topic: str, key: str, before: int, now: int) -> None:
        super().__init__(
            f'the write {key} to topic "{topic}" had {before} records the first time and has {now} now', topic=topic
        )


class JavaMissing(TopicsError):
    """Spark runs on Java 17 or newer and there is none. The message says how to install it."""


class SparkMissing(TopicsError):
    """PySpark is not installed. The message says how to install it."""

    def __init__(self) -> None:
        super().__init__('this needs PySpark; install it with: pip install "topics-engine[spark]"')


class PipelineError(TopicsError):
    """Root of the errors of bulk jobs. A failed job leaves its last good state: fix what the message names, and run the
    same command again."""
