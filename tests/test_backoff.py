"""Tests of the exponential back-off with jitter."""

from __future__ import annotations

from itertools import islice

from edge.backoff import Backoff, Retry


def longest(_: float, most: float) -> float:
    return most


def test_each_wait_is_twice_the_wait_before_up_to_the_limit():
    retry = Retry(Backoff(1, 10), longest)
    assert [retry.failed() for _ in range(6)] == [1, 2, 4, 8, 10, 10]


def test_a_success_begins_with_the_first_wait_again():
    retry = Retry(Backoff(1, 10), longest)
    for _ in range(4):
        retry.failed()
    retry.succeeded()
    assert (retry.failures, retry.failed()) == (0, 1)


def test_half_of_each_wait_is_random():
    drawn = []
    Retry(Backoff(4, 10), lambda *limits: drawn.append(limits) or 3.0).failed()
    assert drawn == [(2, 4)]


def test_a_thousand_failures_do_not_overflow():
    retry = Retry(Backoff(0.1, 60), longest)
    assert [retry.failed() for _ in range(5_000)][-1] == 60


def test_iteration_yields_waits_between_half_and_all_of_the_longest():
    for wait, most in zip(islice(Backoff(1, 4), 5), (1, 2, 4, 4, 4), strict=True):
        assert most / 2 <= wait <= most
