"""What can go wrong in a bulk job, one class per condition. After any of them, the last good state is there."""

from topics.spark.errors import PipelineError


class SeqsUnaccounted(PipelineError):
    """The rows that were read do not add up to the range that was asked for, so nothing was committed. Run it again; if
    it fails again, `topics pipeline audit` says where."""

    def __init__(self, topic: str, reason: str) -> None:
        super().__init__(f'topic "{topic}": {reason}; nothing was committed, run again')


class TopicChanged(PipelineError):
    """The topic was deleted or made again while it was being archived. Run it again to archive what is there now."""

    def __init__(self, topic: str) -> None:
        super().__init__(f'topic "{topic}" was deleted or made anew while it was read; nothing was committed')


class ReplayInUse(PipelineError):
    """Another replay of the same topic into the same target is running, and the two would mix. Wait for it, or stop
    it."""

    def __init__(self, topic: str, into: str, holder: str) -> None:
        by = f" by process {holder}" if holder else ""
        super().__init__(f'"{topic}" is being replayed into "{into}"{by}: wait for it, or stop it, then run again')
