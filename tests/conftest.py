import pytest
import torch


@pytest.fixture(autouse=True)
def _one_thread_per_worker() -> None:
    """Two workers share two cores."""
    torch.set_num_threads(1)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)
