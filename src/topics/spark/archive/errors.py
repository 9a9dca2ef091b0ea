"""What can go wrong with an archive, one class per condition. After any of them the archive is as it was before."""

from topics.spark.errors import PipelineError


class ArchiveInUse(PipelineError):
    """Another job committed to this archive after this one had read it, so this round added nothing. Run it again. In
    an object store, the answer to this job's own commit may have got lost instead: then the next run finds it."""

    def __init__(self, directory: str) -> None:
        cause = "another job wrote to it meanwhile; nothing of this round was added"
        if "://" in directory:
            cause = "another job wrote to it meanwhile, or the answer to a commit got lost; nothing is added twice"
        super().__init__(f"{directory}: {cause}, run again")


class NotAnArchive(PipelineError):
    """There is no table in the directory. Name one that `topics pipeline archive` has written."""

    def __init__(self, directory: str) -> None:
        super().__init__(
            f"{directory} is not an archive: it has no table; name a directory that archive has written",
            directory=directory,
        )


class StoreFailed(PipelineError):
    """An object store refused something or did not answer. The message says what to do; what was committed stays."""

    def __init__(self, address: str, problem: str) -> None:
        super().__init__(f"{address}: {problem}")


class OldArchive(PipelineError):
    """The archive is from before archives were Delta tables. Convert it once; its records stay where they are."""

    def __init__(self, directory: str) -> None:
        super().__init__(
            f"{directory} is an archive of an older version: convert it with topics pipeline convert {directory}"
        )


class DirectoryNotEmpty(PipelineError):
    """The target has files that no archive wrote. Archives never mix with other files: name another directory."""

    def __init__(self, directory: str, name: str) -> None:
        super().__init__(f"{directory} is not empty and no archive (it has {name}): name another directory")


class ArchiveDamaged(PipelineError):
    """The log of a table cannot be read. Restore its directory `_delta_log` from a copy; the records are untouched."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path}: {reason}; restore it from a copy, or archive to another directory")


class ArchiveDiffers(PipelineError):
    """A file of the archive is not what was committed. Restore the file from a copy; `topics pipeline audit` checks
    all of them."""

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"{path} is not what was archived: {reason}; restore it from a copy")


class ArchiveOfAnotherServer(PipelineError):
    """The archive belongs to another server, or holds an earlier topic of this name that was deleted and recreated.
    Archive to another directory, or name the server the archive came from."""

    def __init__(self, directory: str, what: str, reason: str) -> None:
        super().__init__(
            f"{directory} is an archive of {what} ({reason}): archive to another directory, or name the server it is of"
        )


class TopicNotArchived(PipelineError):
    """The archive has no such topic. The message names those it has."""

    def __init__(self, directory: str, topic: str, known: list[str]) -> None:
        names = ", ".join(known[:20]) or "none"
        super().__init__(f'{directory} has no topic "{topic}"; its topics: {names}')


class SchemaDoesNotFit(PipelineError):
    """A record does not fit the schema, so this round archived nothing. Archive to a new directory, with a schema that
    fits, `infer` or `variant`."""

    def __init__(self, topic: str, seq: int, schema: str) -> None:
        super().__init__(
            f'seq {seq} of topic "{topic}" does not fit the schema {schema}; nothing of this round was archived'
        )


class SchemaDiffers(PipelineError):
    """An archive keeps its schema. Leave `--schema` out to go on with it, or archive to another directory."""

    def __init__(self, directory: str, archived: str, given: str) -> None:
        super().__init__(
            f"{directory} has the columns {archived}, not {given}: leave the schema out, or name another directory"
        )


class TargetDiskFull(PipelineError):
    """The disk is full. What was written has been removed again. Free space, and run it again."""

    def __init__(self, directory: str) -> None:
        super().__init__(f"{directory}: no space left; free some and run again, the archive is as it was before")
