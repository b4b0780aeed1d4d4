"""Threads share the rows, change nothing but the order of sums, and repeat to the bit."""

import threading

import numba
import pytest
import torch

from isolatent.contrast.kernels import numba_engine


@pytest.fixture
def _threads_for_any_size(monkeypatch):
    monkeypatch.setattr(numba_engine, "ALONE", 0)


def with_threads(count, function):
    torch.set_num_threads(count)
    try:
        return function()
    finally:
        torch.set_num_threads(1)


@pytest.mark.usefixtures("_threads_for_any_size")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("p", [None, 1])
def test_two_runs_are_equal_to_the_bit(lab, p, threads):
    problem = lab.draw(lab.COMPILED[torch.float32][p], p, 2001, 1517, 6).to(torch.float32)
    once, again = (with_threads(threads, lambda: lab.evaluate(problem, "numba")) for _ in range(2))
    assert all(torch.equal(once[k], again[k]) for k in once)


@pytest.mark.usefixtures("_threads_for_any_size")
@pytest.mark.parametrize("rows", [1, 4, 5, 9, 301])
def test_two_threads_equal_dense(lab, rows):
    problem = lab.draw("both_logsumexp", None, rows, 300, 3, skip=True)
    errors = with_threads(2, lambda: lab.difference(problem, "numba", torch.float64))
    assert max(errors.values()) < 1e-12, errors


def test_threads_follow_torch_and_stay_one_for_few_pairs():
    assert with_threads(2, lambda: numba_engine.thread_count(100, 100)) == 1
    assert with_threads(1, lambda: numba_engine.thread_count(10**5, 10**5)) == 1
    assert with_threads(2, lambda: numba_engine.thread_count(10**5, 10**5)) == min(
        2, numba.config.NUMBA_NUM_THREADS
    )
    assert with_threads(2, lambda: numba_engine.thread_count(3, 10**9)) == 1  # one block of rows


def test_callers_in_several_threads_do_not_disturb_each_other(lab):
    problem = lab.draw("row_logsumexp", 2, 64, 300, 4).to(torch.float32)
    expected = lab.evaluate(problem, "numba")
    results = [None] * 4

    def call(k):
        results[k] = lab.evaluate(problem, "numba")

    callers = [threading.Thread(target=call, args=(k,)) for k in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert all(torch.equal(r[k], expected[k]) for r in results for k in expected)
