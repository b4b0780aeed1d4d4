"""Threads compute every part once, in order, and report errors."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from isolatent.parallel import map_ranges, map_threads, max_threads


@pytest.fixture
def set_threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@given(count=st.integers(0, 50), threads=st.integers(0, 8), pooled=st.booleans())
def test_ranges_cover_every_row_once_with_one_range_per_thread(count, threads, pooled):
    visits, ranges = np.zeros(count, int), {}

    def work(t, first, last):
        visits[first:last] += 1
        ranges[t] = first, last

    if pooled:
        with ThreadPoolExecutor(2) as pool:
            map_ranges(work, count, threads, pool)
    else:
        map_ranges(work, count, threads)
    assert (visits == 1).all()
    assert sorted(ranges) == list(range(max(1, threads)))
    lengths = [last - first for first, last in ranges.values()]
    assert max(lengths) - min(lengths) <= 1


@pytest.mark.parametrize("failing", [0, 1])
def test_an_error_in_any_thread_is_raised(failing):
    def work(t, first, last):
        if t == failing:
            raise RuntimeError(f"thread {t}")

    with pytest.raises(RuntimeError, match=f"thread {failing}"):
        map_ranges(work, 10, 2)


def test_ranges_run_at_the_same_time():
    meeting = threading.Barrier(3)
    map_ranges(lambda *_: meeting.wait(10), 3, 3)


@pytest.mark.parametrize("threads", [1, 2])
def test_results_keep_the_order_of_the_parts_and_torch_its_number_of_threads(threads, set_threads):
    set_threads(threads)
    assert map_threads(lambda x: x * x, range(50)) == [x * x for x in range(50)]
    assert torch.get_num_threads() == threads
    assert map_threads(lambda x: x, []) == []

    def fail(part):
        raise RuntimeError("no")

    with pytest.raises(RuntimeError, match="no"):
        map_threads(fail, range(3))
    assert torch.get_num_threads() == threads


def test_the_first_part_is_computed_before_the_others(set_threads):
    set_threads(2)
    started = []

    def work(part):
        started.append(part)
        return len(started)

    assert map_threads(work, "abc")[0] == 1
    assert started[0] == "a"


def test_threads_are_limited_by_torch(set_threads):
    set_threads(1)
    assert max_threads() == 1
