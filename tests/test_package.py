"""The package as a whole: imports, exported names, and one meaning for each name."""

import ast
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

import isolatent as iso

SOURCE = Path(__file__).parents[1] / "src/isolatent"
PACKAGES = [
    "isolatent",
    *(f"isolatent.{found.name}" for found in pkgutil.iter_modules([str(SOURCE)]) if found.ispkg),
]


# Imports


def loaded_by(code):
    """Return the names of the modules that are loaded after running code in a new interpreter."""
    command = [sys.executable, "-c", f"{code}; import sys; print(*sys.modules)"]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


def test_importing_the_package_loads_the_standard_library_only():
    loaded = loaded_by("import isolatent") - loaded_by("pass")
    assert {name.split(".")[0] for name in loaded} - set(sys.stdlib_module_names) == {"isolatent"}


def test_the_estimator_loads_no_plotting_or_cluster_library():
    loaded = loaded_by("import isolatent; isolatent.ContrastiveICA")
    assert not {"plotly", "matplotlib", "ray"} & loaded


# Exported names


def test_the_top_level_is_small():
    assert len(iso.__all__) <= 50


@pytest.mark.parametrize("package", PACKAGES)
def test_exported_names_exist_and_are_documented(package):
    module = importlib.import_module(package)
    assert module.__doc__
    assert sorted(set(module.__all__)) == sorted(module.__all__)
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.isclass(value) or inspect.isroutine(value):
            assert value.__doc__, name
            assert not value.__doc__.startswith(f"{name}("), name  # written by dataclass


@pytest.mark.parametrize("package", ["isolatent", "isolatent.encoders"])
def test_exported_names_have_an_example(package):
    module = importlib.import_module(package)
    docs = {name: inspect.cleandoc(getattr(module, name).__doc__) for name in module.__all__}
    assert not [name for name, doc in docs.items() if "\nExample:\n    >>> " not in doc]


def test_the_top_level_lists_its_names():
    assert set(iso.__all__) <= set(dir(iso))
    with pytest.raises(AttributeError, match="no attribute 'Spere'"):
        iso.Spere  # noqa: B018


def test_type_checkers_see_the_same_names():
    text = (SOURCE / "__init__.py").read_text()
    assert set(re.findall(r"import (\w+) as \1", text)) == set(iso.__all__)


# One meaning for each name

# Names that stand for one thing in several modules.
SAME_MEANING = {
    "module experiments": "the commands of that name, in cli, and the package they call",
    "module calibration": "the layers, in encoders, and their estimation, in training",
    "module relaxations": "what is left to assume, in theory, and what is learned, in contrast",
    "module linear": "linear methods, in baselines, and the linear score, in evaluation",
    "module recordings": "recordings, in pairs, and estimators that take them, in training",
    "function infonce": "each kernel engine has one, with one signature",
    "function forward": "each kernel engine has one, with one signature",
    "function backward": "each kernel engine has one, with one signature",
    "class State": "each kernel engine keeps its own state from forward to backward",
}


def public_names(tree):
    """Yield kind, name and value of the public names that a module defines.

    Functions of the command line that are commands are left out: they are named after the command.
    The value of a constant is its expression; other names have no value, so that each definition is
    another meaning.
    """
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            yield "class", node.name, None
        elif isinstance(node, ast.FunctionDef):
            decorators = [ast.unparse(decorator) for decorator in node.decorator_list]
            if "app.command()" not in decorators:
                yield "function", node.name, None
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name) and target.id.isupper():
                    yield "constant", target.id, ast.unparse(node.value)


def find_clashes(root):
    """Return the names with several meanings, and the modules that define each of them."""
    meanings, places = defaultdict(set), defaultdict(set)
    for path in root.rglob("*.py"):
        module = path.parent if path.stem == "__init__" else path
        where = str(path.relative_to(root))
        defined = [("module", module.stem, None), *public_names(ast.parse(path.read_text()))]
        for kind, name, value in defined:
            if not name.startswith("_"):
                meanings[f"{kind} {name}"].add(where if value is None else value)
                places[f"{kind} {name}"].add(where)
    return {name: sorted(places[name]) for name in places if len(meanings[name]) > 1}


def test_each_name_has_one_meaning():
    clashes = find_clashes(SOURCE)
    assert not {k: v for k, v in clashes.items() if k not in SAME_MEANING}


def test_the_listed_clashes_exist():
    assert set(SAME_MEANING) <= set(find_clashes(SOURCE))


def test_clashes_are_found(tmp_path):
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    (tmp_path / "one/__init__.py").write_text("")
    (tmp_path / "one/a.py").write_text("class A: ...\nB = 1\nC = 2\ndef f(): ...\ndef _g(): ...\n")
    (tmp_path / "two/a.py").write_text("class A: ...\nB = 1\nC: int = 3\ndef _g(): ...\n")
    (tmp_path / "two/one.py").write_text("@app.command()\ndef f(): ...\n")
    both = ["one/a.py", "two/a.py"]
    assert find_clashes(tmp_path) == {
        "class A": both,
        "constant C": both,
        "module a": both,
        "module one": ["one/__init__.py", "two/one.py"],
    }
