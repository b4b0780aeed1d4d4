"""Argument checks accept what is allowed and name what is not."""

import math

import numpy as np
import pytest
import torch

from isolatent.checks import (
    check_generator,
    check_integer,
    check_one_of,
    check_real,
    check_scale,
    check_tensor,
)


def test_accepted_values_come_back_as_plain_numbers():
    assert type(check_integer("n", np.int64(3), at_least=1)) is int
    assert type(check_real("x", np.float32(0.5))) is float
    assert check_real("x", 2, above=1, below=3) == 2.0
    assert check_scale("s", 2) == 2.0
    assert check_scale("s", np.array([1.0, 2.0])) == (1.0, 2.0)
    assert check_scale("s", torch.tensor([1.0, 2.0])) == (1.0, 2.0)
    assert check_scale("s", torch.tensor(3.0)) == 3.0
    assert check_one_of("m", "a", ("a", "b")) == "a"
    assert check_integer("n", 3, at_least=1, at_most=3) == 3
    generator = torch.Generator()
    assert check_generator("g", generator) is generator
    tensor = torch.zeros(2)
    assert check_tensor("z", tensor) is tensor
    assert check_tensor("z", np.zeros(2, np.float16)).dtype == torch.float32


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: check_integer("n", True, at_least=0), TypeError),
        (lambda: check_integer("n", 1.0, at_least=0), TypeError),
        (lambda: check_integer("n", -1, at_least=0), ValueError),
        (lambda: check_real("n", "1"), TypeError),
        (lambda: check_real("n", True), TypeError),
        (lambda: check_real("n", math.nan), ValueError),
        (lambda: check_real("n", math.inf), ValueError),
        (lambda: check_real("n", 1.0, above=1.0), ValueError),
        (lambda: check_real("n", 0.9, at_least=1.0), ValueError),
        (lambda: check_real("n", 1.0, below=1.0), ValueError),
        (lambda: check_integer("n", 4, at_least=1, at_most=3), ValueError),
        (lambda: check_generator("n", 0), TypeError),
        (lambda: check_generator("n", None), TypeError),
        (lambda: check_tensor("n", "1"), TypeError),
        (lambda: check_tensor("n", [[1], [1, 2]]), ValueError),
        (lambda: check_tensor("n", torch.tensor(1j)), TypeError),
        (lambda: check_scale("n", []), TypeError),
        (lambda: check_scale("n", None), TypeError),
        (lambda: check_scale("n", True), TypeError),
        (lambda: check_scale("n", [1.0, "2"]), TypeError),
        (lambda: check_scale("n", [[1.0]]), TypeError),
        (lambda: check_one_of("n", "c", ("a", "b")), ValueError),
    ],
)
def test_refused_values(make, error):
    with pytest.raises(error, match=r"^n(\[\d\])? must be"):
        make()
