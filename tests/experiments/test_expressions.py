"""Calls and tables give the same declarations; anything else is rejected, never evaluated."""

import pytest

from isolatent.experiments.expressions import parse_declaration


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("Sphere(3)", {"kind": "Sphere", "n": 3, "radius": 1.0}),
        ("Box(n=2, low=-1, high=1)", {"kind": "Box", "n": 2, "low": -1.0, "high": 1.0}),
        ("Normal(0.1)", {"kind": "Normal", "std": 0.1}),
        ("Laplace([0.1] * 2 + [0.3])", {"kind": "Laplace", "scale": [0.1, 0.1, 0.3]}),
        (
            "Product(Sphere(2), Box(1))",
            {
                "kind": "Product",
                "spaces": [parse_declaration("Sphere(2)"), parse_declaration("Box(1)")],
            },
        ),
    ],
)
def test_a_call_equals_a_table(text, same):
    assert parse_declaration(text) == parse_declaration(same)


def test_parsing_is_idempotent():
    once = parse_declaration("AnisotropicNormal(linspace(5, 25, 3))")
    assert once["weights"] == [5.0, 15.0, 25.0]
    assert parse_declaration(once) == once


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Cube(3)", "kind must be one of"),
        ("Sphere(3", "not a declaration"),
        ("3", "not a declaration"),
        ("Sphere(m=3)", "Sphere takes n, radius"),
        ("Normal(__import__('os').getcwd())", "must be a number"),
        ("Normal(open)", "must be a number"),
        ("Normal(linspace(1))", r"must be a number.* or linspace\(first, last, count\)"),
        ("Normal(linspace(0, 1, num=3))", r"linspace\(first, last, count\)"),
        ("Normal(linspace(0, 1, 10000000000))", "count of linspace must be an integer >= 1"),
        ("Normal([0.1] * 10000000000)", "the multiple of a list must be an integer >= 0"),
        ("Normal([0.1] + 2)", "must be a number"),
        ("Normal(-'a')", "must be a number"),
        ("Product(Sphere(2), spaces=3)", "Product takes declarations only"),
        ("Normal(-1.0)", "std must be a finite number > 0, got -1.0"),
    ],
)
def test_mistakes_are_rejected_without_evaluation(text, message):
    with pytest.raises(ValueError, match=message):
        parse_declaration(text)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("InvertibleMLP(layers=1000000000)", "layers must be an integer .* <= 10000"),
        ("Box(10000000)", "n must be an integer .* <= 10000"),
        ("CubeGrid(2, 1000000000)", "cells must be an integer .* <= 10000"),
        ("AnisotropicNormal([[1.0] * 5000] * 5000)", "weights must hold at most 10000 numbers"),
        ("AnisotropicNormal([[[1.0] * 200] * 200] * 200)", "at most 10000 numbers"),
        ("AnisotropicNormal(" + "[" * 150 + "1" + "]" * 150 + ")", "(nested at most|not a decl)"),
    ],
)
def test_sizes_are_bounded_before_anything_is_built(written, message):
    with pytest.raises(ValueError, match=message):
        parse_declaration(written)
    kind, _, rest = written.partition("(")
    if "=" in rest:
        name, _, value = rest.removesuffix(")").partition("=")
        with pytest.raises(ValueError, match=message):
            parse_declaration({"kind": kind, name: int(value)})
