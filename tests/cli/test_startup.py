"""Help and errors in arguments or files do not wait for torch."""

import subprocess
import sys

import numpy as np
import pytest

resource = pytest.importorskip("resource")  # POSIX

CALL = """
import resource, sys
from isolatent.cli import main
try:
    main()
except SystemExit as stopped:
    code = stopped.code
used = resource.getrusage(resource.RUSAGE_SELF)
print("\\n", code or 0, used.ru_utime + used.ru_stime, "torch" in sys.modules)
"""


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--help"], 0),
        (["--version"], 0),
        (["fit", "--help"], 0),
        (["fit", "nofile.csv"], 2),
        (["fit", "x.xls"], 2),
        (["fit", "text.csv"], 2),
        (["fit", "x.npy", "--columns", "9"], 2),
        (["fit", "x.npy", "--encoder", "cnn"], 2),
        (["fit", "x.npy", "--n-components", "20", "--out", "new"], 2),
        (["transform", "nomodel", "x.npy"], 2),
        (["transform", "model", "nofile.csv"], 2),
        (["report", "."], 2),
        (["reproduce"], 2),
    ],
    ids=str,
)
def test_answers_take_less_than_a_second_of_processor_time(tmp_path, arguments, expected):
    (tmp_path / "text.csv").write_text("a,b\n1,x\n2,y\n")
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(20, 3)))
    (tmp_path / "model").mkdir()
    for name in ("model.json", "model.safetensors"):
        (tmp_path / "model" / name).write_text("{}")
    done = subprocess.run(
        [sys.executable, "-c", CALL, *arguments], cwd=tmp_path, capture_output=True, text=True
    )
    code, seconds, has_torch = done.stdout.splitlines()[-1].split()
    assert (int(code), has_torch) == (expected, "False"), done.stderr
    assert float(seconds) < 1
