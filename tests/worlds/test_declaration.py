"""Spaces, distributions and mixings survive conversion to JSON."""

import json
from dataclasses import dataclass

import numpy as np
import pytest

import isolatent.worlds as package
from isolatent.worlds import (
    AnisotropicNormal,
    Box,
    CubeGrid,
    Distribution,
    Euclidean,
    FlowMixing,
    GaussianCopula,
    GeneralizedNormal,
    HollowBall,
    Identity,
    Independent,
    InvertibleMLP,
    Laplace,
    Linear,
    Mixing,
    Normal,
    Product,
    ShellNormal,
    Space,
    Sphere,
    Uniform,
    VonMisesFisher,
)
from isolatent.worlds.declaration import declared_classes, from_dict, to_dict

INT, REAL = np.int64, np.float32
DECLARED = [
    Sphere(INT(3), REAL(1)),
    Box(INT(3), REAL(0), REAL(1)),
    HollowBall(INT(3), REAL(0.5), REAL(1)),
    Euclidean(INT(2)),
    CubeGrid(INT(3), INT(2), REAL(0.25)),
    Product(Box(INT(1)), Product(Box(INT(2)), Sphere(3))),
    Uniform(),
    Normal(REAL(0.5)),
    Laplace(np.ones(3, np.float32)),
    GeneralizedNormal(INT(3), REAL(0.5)),
    VonMisesFisher(REAL(2)),
    AnisotropicNormal(REAL(2)),
    ShellNormal(REAL(2), REAL(0.5)),
    GaussianCopula(INT(3), REAL(0.5)),
    Independent(Uniform(), Normal((0.1, 0.2))),
    Identity(),
    Linear(INT(3), np.eye(3)),
    FlowMixing(INT(2), INT(4), REAL(0.5)),
    InvertibleMLP(INT(1), slope=REAL(0.25), n_observed=INT(4), condition_draws=INT(10)),
]


@pytest.mark.parametrize("declared", DECLARED, ids=repr)
def test_json_gives_an_equal_object(declared):
    """NumPy numbers become plain numbers."""
    spec = json.loads(json.dumps(to_dict(declared)))
    assert repr(from_dict(spec)) == repr(declared)
    assert to_dict(from_dict(spec)) == spec


def test_every_public_class_is_declared():
    public = {getattr(package, name) for name in package.__all__}
    bases = (Space, Distribution, Mixing)
    concrete = {kind for kind in public if issubclass(kind, bases)} - {*bases}
    assert {type(declared) for declared in DECLARED} == concrete
    assert concrete <= {*declared_classes().values()}
    assert not {*bases} & {*declared_classes().values()}


def test_classes_of_users_are_declared_but_do_not_replace_ours():
    @dataclass(frozen=True)
    class UserBox(Box):
        """A subclass of a user."""

    assert from_dict(to_dict(UserBox(2))) == UserBox(2)
    UserBox.__name__ = "Box"
    assert declared_classes()["Box"] is Box


@pytest.mark.parametrize(
    ("spec", "error", "message"),
    [
        (3, ValueError, "must be a dict with the key 'kind', got 3"),
        ({"n": 3}, ValueError, "must be a dict with the key 'kind'"),
        ({"kind": ["Box"]}, ValueError, "kind must be one of"),
        ({"kind": "Cube"}, ValueError, "kind must be one of .*got 'Cube'"),
        ({"kind": "Product"}, ValueError, "takes a list under 'spaces'"),
        ({"kind": "Product", "spaces": 3}, ValueError, "takes a list under"),
        ({"kind": "Independent", "a": [], "b": []}, ValueError, "'parts' alone"),
        ({"kind": "Box", "m": 1}, TypeError, "Box: .*unexpected keyword argument 'm'"),
    ],
)
def test_wrong_specs(spec, error, message):
    with pytest.raises(error, match=message):
        from_dict(spec)
