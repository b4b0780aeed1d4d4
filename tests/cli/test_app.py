"""The command line, as a person runs it."""

import json
import os
import signal
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest

import isolatent as iso
from isolatent.cli import main
from isolatent.worlds import World


@pytest.fixture
def isolatent(monkeypatch, capsys, tmp_path_factory):
    monkeypatch.chdir(tmp_path_factory.mktemp("here"))

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["isolatent", *arguments])
        with pytest.raises(SystemExit) as stopped:
            main()
        out, err = capsys.readouterr()
        return SimpleNamespace(returncode=stopped.value.code or 0, stdout=out, stderr=err)

    return run


def test_demo_prints_and_writes_the_same_figures(isolatent, tmp_path):
    path = tmp_path / "figures.json"
    done = isolatent("demo", "--max-steps", "20", "--json", str(path), "--seed", "1")
    assert done.returncode == 0, done.stderr
    figures = json.loads(path.read_text())
    assert {
        *("identity_r2", "recovered_r2", "recovered_mcc", "seconds", "seed", "world"),
    } <= set(figures)
    assert figures["seed"] == 1
    assert 0.5 < figures["identity_r2"] < 0.8
    low, high = figures["intervals"]["recovered_r2"]
    assert low < figures["recovered_r2"] < high
    assert f"{figures['recovered_r2']:.3f}" in done.stdout
    assert f"{figures['recovered_mcc']:.3f}" in done.stdout
    assert "orthogonal map" in done.stdout
    assert "step 20 of at most 20" in done.stderr
    assert World.from_dict(figures["world"]).to_dict() == figures["world"]
    assert os.listdir(tmp_path) == ["figures.json"]


def test_quiet_prints_the_result_only(isolatent):
    done = isolatent("demo", "--max-steps", "2", "--quiet")
    assert done.returncode == 0
    assert done.stderr == ""
    assert "Training" not in done.stdout
    assert "recovered" in done.stdout


def test_bad_arguments_are_one_line_and_nothing_is_lost(isolatent, tmp_path):
    mine = tmp_path / "mine.json"
    mine.write_text("precious")
    for arguments, message in (
        (("--json", str(mine)), "exists; pass --overwrite"),
        (("--json", str(tmp_path)), "must be a file, but"),
        (("--json", str(tmp_path / "no" / "f.json")), "does not exist"),
        (("--seed", "-1"), "--random-state must be an integer >= 0 and <= 4294967295, got -1"),
        (("--max-steps", "0"), "--max-steps must be an integer >= 1, got 0"),
        (
            ("--seed", "9" * 20),
            "--random-state must be an integer >= 0 and <= 4294967295, got 99999999999999999999",
        ),
        (("--speed", "9"), "No such option: --speed"),
    ):
        done = isolatent("demo", *arguments)
        assert done.returncode == 2
        assert message in done.stderr
        assert "Traceback" not in done.stderr
    assert mine.read_text() == "precious"


def test_version(isolatent):
    assert isolatent("--version").stdout.strip() == f"isolatent {iso.__version__}"


@pytest.mark.slow
def test_the_demo_keeps_its_promise(isolatent, tmp_path):
    """R² of at least 0.99 in under 90 s on two cores."""
    path = tmp_path / "figures.json"
    isolatent("demo", "--quiet", "--json", str(path))
    figures = json.loads(path.read_text())
    assert figures["recovered_r2"] >= 0.99
    assert figures["seconds"] < 90


@pytest.mark.skipif(sys.platform == "win32", reason="signals differ")
def test_an_interrupt_ends_without_a_traceback():
    process = subprocess.Popen(
        [sys.executable, "-c", "from isolatent.cli import main; main()", "demo"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # ignored in background
    )
    assert "world" in process.stdout.readline()
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "interrupted" in stderr
    assert "Traceback" not in stderr
