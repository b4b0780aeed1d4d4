"""A recording larger than memory is fitted without reading all of it."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

MB = 1 << 20


def make_recording(path, rows, width, blocks=40):
    """Write a sparse file: walks in blocks of rows, and zeros between the blocks."""
    recording = np.lib.format.open_memmap(path, "w+", np.float32, (rows, width))
    rng = np.random.default_rng(0)
    mixing = rng.normal(size=(2, width)).astype(np.float32)
    for start in np.linspace(0, rows - 1000, blocks).astype(int):
        angle = np.cumsum(0.3 * rng.normal(size=1000))
        recording[start : start + 1000] = np.stack([np.cos(angle), np.sin(angle)], 1) @ mixing
    recording.flush()


def peak():
    """Return the peak memory of this process in bytes, the larger of two counts of the kernel."""
    import resource

    status = Path("/proc/self/status").read_text()
    high_water = int(status.split("VmHWM:")[1].split()[0]) * 1024
    return max(high_water, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


def work(path, steps):
    import torch

    import isolatent as iso

    torch.set_num_threads(1)
    recording = np.load(path, mmap_mode="r")
    recipe = iso.Recipe(max_steps=steps, batch_size=256, saturation=0.0)
    small = np.random.default_rng(0).normal(size=(5000, recording.shape[1])).astype(np.float32)
    model = iso.ContrastiveICA(2, space="euclidean", recipe=recipe, random_state=0)
    model.fit(small)
    before = peak()
    model.fit(recording)
    after_fit = peak()
    part = recording[: 40 * 8192]
    assert np.isfinite(model.transform(part)).all()
    print(json.dumps({"before": before, "fit": after_fit, "transform": peak()}))


def peaks_of(path, steps):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", __file__, str(path), str(steps)],
        capture_output=True,
        text=True,
        check=True,
        timeout=900,
    )
    return json.loads(done.stdout)


linux = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")


@linux
def test_a_large_file_needs_little_more_memory_than_a_small_array(tmp_path):
    """At most the 4096 rows of a draw, with 64 kB that the kernel maps around each: 256 MB."""
    make_recording(tmp_path / "x.npy", 5_000_000, 100)  # 2 GB
    peaks = peaks_of(tmp_path / "x.npy", 10)
    assert peaks["fit"] - peaks["before"] < 400 * MB
    assert peaks["transform"] - peaks["before"] < 400 * MB


@linux
@pytest.mark.slow
def test_twenty_gigabytes_need_less_than_one_and_a_half(tmp_path):
    make_recording(tmp_path / "x.npy", 5_000_000, 1000)
    assert (tmp_path / "x.npy").stat().st_size > 20e9
    peaks = peaks_of(tmp_path / "x.npy", 300)
    assert peaks["transform"] < 1.5e9
    assert peaks["fit"] < 1.5e9


if __name__ == "__main__":
    work(Path(sys.argv[1]), int(sys.argv[2]))
