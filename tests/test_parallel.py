"""Work on several threads gives the results of a loop."""

import pytest
import torch

from isolatent.parallel import map_in_threads


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_keep_the_order_of_the_items_and_torch_its_number(threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert map_in_threads(lambda x: x * x, range(50)) == [x * x for x in range(50)]
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
