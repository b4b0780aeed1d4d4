import pytest

from isolatent.experiments.expressions import declaration


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("Sphere(3)", {"kind": "Sphere", "n": 3, "radius": 1.0}),
        ("Box(n=2, low=-1, high=1)", {"kind": "Box", "n": 2, "low": -1.0, "high": 1.0}),
        ("Normal(0.1)", {"kind": "Normal", "std": 0.1}),
        ("Laplace([0.1] * 2 + [0.3])", {"kind": "Laplace", "scale": [0.1, 0.1, 0.3]}),
        (
            "Product(Sphere(2), Box(1))",
            {"kind": "Product", "spaces": [declaration("Sphere(2)"), declaration("Box(1)")]},
        ),
    ],
)
def test_a_call_says_the_same_as_a_table(text, same):
    assert declaration(text) == declaration(same)


def test_a_declaration_of_a_declaration_is_itself():
    once = declaration("AnisotropicNormal(linspace(5, 25, 3))")
    assert once["weights"] == [5.0, 15.0, 25.0]
    assert declaration(once) == once


@pytest.mark.parametrize(
    ("text", "told"),
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
        ("Product(Sphere(2), spaces=3)", "Product takes declarations alone"),
        ("Normal(-1.0)", "std must be a finite number > 0, got -1.0"),
    ],
)
def test_mistakes_are_told_and_nothing_is_run(text, told):
    with pytest.raises(ValueError, match=told):
        declaration(text)
