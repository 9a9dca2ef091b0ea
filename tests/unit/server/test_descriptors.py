"""Who gets how many file descriptors: files never fewer than they need, however many connections come."""

import resource
import subprocess
import sys

import pytest

from topics import limits
from topics.errors import ConfigurationError
from topics.server.descriptors import ENOUGH, share_out


@pytest.mark.parametrize("descriptors", [256, 257, 300, 1000, 1024, 4096, 10_000, 20_000, ENOUGH.total - 1])
def test_nobody_gets_what_another_has(descriptors: int) -> None:
    shares = share_out(descriptors)
    assert shares.total <= descriptors
    assert all(share > 0 for share in shares)
    assert shares.connections_max >= descriptors // 4
    assert limits.DESCRIPTORS_SPARE < limits.DESCRIPTORS_RESERVED


def test_more_shares_never_make_fewer_of_anything() -> None:
    before = share_out(limits.DESCRIPTORS_MIN)
    for descriptors in range(limits.DESCRIPTORS_MIN, ENOUGH.total + 2, 37):
        shares = share_out(descriptors)
        assert all(now >= then - 2 for now, then in zip(shares, before, strict=True))  # what is rounded may jump
        before = shares


def test_enough_is_enough() -> None:
    assert share_out(ENOUGH.total) == share_out(1 << 30) == ENOUGH
    assert ENOUGH.connections_max == limits.CONNECTIONS_MAX


def test_a_limit_that_is_too_small_refuses_to_start_with_what_to_do() -> None:
    with pytest.raises(ConfigurationError) as refused:
        share_out(limits.DESCRIPTORS_MIN - 1)
    assert "ulimit -Hn" in refused.value.message


CLAIM = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (int(sys.argv[1]), int(sys.argv[2])))
from topics.server.descriptors import claim_descriptors
print(claim_descriptors().connections_max, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""


@pytest.mark.parametrize(("soft", "hard"), [(256, 256), (256, 2000), (1024, 2000)])
def test_the_soft_limit_is_raised_as_far_as_it_goes(soft: int, hard: int) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", CLAIM, str(soft), str(hard)], capture_output=True, check=True, text=True
    )
    assert ran.stdout.split() == [str(share_out(hard).connections_max), str(hard)]
    assert "LimitNOFILE" in ran.stderr


def test_the_soft_limit_is_not_raised_beyond_any_use() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY and hard <= ENOUGH.total:
        pytest.skip("this machine allows no more open files than the server has a use for")
    ran = subprocess.run([sys.executable, "-c", CLAIM, "256", str(hard)], capture_output=True, check=True, text=True)
    assert ran.stdout.split() == [str(limits.CONNECTIONS_MAX), str(ENOUGH.total)]
    assert "LimitNOFILE" not in ran.stderr
