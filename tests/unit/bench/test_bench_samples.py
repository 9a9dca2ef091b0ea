"""Percentiles, the median round and paired ratios."""

from array import array

import pytest

from topics.bench.samples import Counts, Sample, median_round, paired_ratio, percentile, sample_of


def sample_with(records: int) -> Sample:
    return Sample(records, records, 1.0, 0.1, 0.2, 0.3, 0, None, 0.5)


def records_per_s(sample: Sample) -> float:
    return sample.records_per_s


@pytest.mark.parametrize(
    ("per_mille", "expected"), [(0, 1), (1, 1), (500, 500), (501, 501), (990, 990), (999, 999), (1000, 1000)]
)
def test_a_percentile_of_a_thousand_values_is_the_value_of_that_rank(per_mille: int, expected: int) -> None:
    assert percentile(range(1, 1001), per_mille) == expected


def test_a_percentile_of_few_values_is_one_of_them() -> None:
    assert [percentile([10, 20, 30], share) for share in (500, 990, 999)] == [20, 30, 30]


def test_a_percentile_of_nothing_is_zero() -> None:
    assert percentile([], 500) == 0


def test_a_sample_counts_records_and_sorts_latencies() -> None:
    latencies_ns = array("Q", [3_000_000, 1_000_000, 2_000_000])
    counts = Counts(
        latencies_ns, requests=3, records=300, elapsed_ns=2_000_000_000, errors=1, first_error="HTTP/1.1 500"
    )
    sample = sample_of(counts, 500_000_000, 600_000)
    assert (sample.requests, sample.records, sample.records_per_s) == (3, 300, 150.0)
    assert (sample.p50_ms, sample.p99_ms, sample.generator_busy) == (2.0, 3.0, 0.25)
    assert (sample.errors, sample.first_error) == (1, "HTTP/1.1 500")
    assert sample.cpu_us_per_record == 2.0


def test_counts_add_up_and_the_first_error_stays_the_first() -> None:
    first = Counts(array("Q", [1]), 1, 10, 100, 1, "one", (4, 6))
    second = Counts(array("Q", [2]), 2, 20, 200, 1, "two", (20, 0))
    added = Counts.nothing() + first + second
    assert added == Counts(array("Q", [1, 2]), 3, 30, 300, 2, "one", (24, 6))


def test_a_target_somebody_else_started_does_not_tell_its_processor_time() -> None:
    assert sample_with(1).cpu_us_per_record is None
    assert paired_ratio([sample_with(1)], [sample_with(1)], lambda sample: sample.cpu_us_per_record) is None


@pytest.mark.parametrize(("rates", "middle"), [([5], 5), ([9, 1], 1), ([30, 10, 20], 20), ([4, 1, 3, 2], 2)])
def test_the_median_round_is_one_that_was_run(rates: list[int], middle: int) -> None:
    assert median_round([sample_with(rate) for rate in rates]).records == middle


def test_a_slow_moment_of_the_machine_leaves_the_ratio_alone() -> None:
    subject = [sample_with(rate) for rate in (200, 20, 200)]
    peer = [sample_with(rate) for rate in (100, 10, 100)]
    ratio = paired_ratio(subject, peer, records_per_s)
    assert ratio is not None
    assert ratio.median == 2.0


def test_there_is_no_ratio_to_a_peer_that_did_nothing() -> None:
    assert paired_ratio([sample_with(1)], [sample_with(0)], records_per_s) is None
