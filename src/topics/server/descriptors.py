"""File descriptors: how many this process may have, and who gets how many.

Connections come from outside, and nobody needs a key to open one. They never get the descriptors that files need:
without one the log cannot begin its next file, and nothing could be written until a restart.
"""

import logging
import resource
from typing import NamedTuple

from topics import limits
from topics.errors import ConfigurationError

log = logging.getLogger("topics.server")


class Descriptors(NamedTuple):
    """A bound for each user of descriptors."""

    connections_max: int = limits.CONNECTIONS_MAX
    backlog: int = limits.LISTEN_BACKLOG
    segments_open_max: int = limits.SEGMENTS_OPEN_MAX

    @property
    def total(self) -> int:
        # What waits in the backlog is accepted in one turn of the loop, and refused only after it.
        segments = self.segments_open_max * limits.DESCRIPTORS_PER_SEGMENT
        return self.connections_max + self.backlog + segments + limits.DESCRIPTORS_RESERVED


ENOUGH = Descriptors()


def share_out(descriptors: int) -> Descriptors:
    """Divides descriptors. If there are enough, everybody gets as many as they can use; otherwise, after the reserve, a
    quarter goes to segments, an eighth to connections that wait to be accepted, and the rest to connections."""
    wanted = ENOUGH
    if descriptors >= wanted.total:
        return wanted
    if descriptors < limits.DESCRIPTORS_MIN:
        raise ConfigurationError(
            f"this process may open {descriptors} files, and the server needs at least {limits.DESCRIPTORS_MIN}: raise "
            f"the hard limit (ulimit -Hn, LimitNOFILE in systemd). More than {wanted.total} brings nothing"
        )
    shared = descriptors - limits.DESCRIPTORS_RESERVED
    segments_open_max = min(wanted.segments_open_max, shared // 4 // limits.DESCRIPTORS_PER_SEGMENT)
    backlog = min(wanted.backlog, shared // 8)
    left = shared - segments_open_max * limits.DESCRIPTORS_PER_SEGMENT - backlog
    return Descriptors(min(wanted.connections_max, left), backlog, segments_open_max)


def claim_descriptors() -> Descriptors:
    """Raises the soft limit of this process as far as is useful, and divides what it then has."""
    wanted = ENOUGH.total
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        raised = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
        except (OSError, ValueError) as error:
            log.warning("the limit of open files stays at %d: %s", soft, error)
        else:
            soft = raised
    descriptors = share_out(wanted if soft == resource.RLIM_INFINITY else soft)
    if descriptors.connections_max < limits.SSE_CONNECTIONS_MAX:
        log.warning(
            "this process may open only %d files, so it takes %d connections instead of %d. Raise the hard limit "
            "(ulimit -Hn, LimitNOFILE in systemd) to %d to have them all",
            soft,
            descriptors.connections_max,
            limits.CONNECTIONS_MAX,
            wanted,
        )
    return descriptors
