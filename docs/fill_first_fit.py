"""Run the commands and examples of docs/first_fit.md in their order, and write what they print.

python docs/fill_first_fit.py

The picture of the codes becomes docs/first_fit.png.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

WALK = Path(__file__).with_name("first_fit.md")
BLOCK = re.compile(
    r"^```\n(?P<command>(?:isolatent|head) [^\n]*)\n.*?^```$|^```python\n(?P<code>.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
PICTURE = "codes.png"  # that an example draws
CALL = "from isolatent.cli import main; main()"
PROGRESS = "step "  # of lines of which only the last is kept
LONGEST = 110  # characters of a line of output


def main() -> None:
    """Replace the output of every command."""
    text = WALK.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        WALK.write_text(BLOCK.sub(lambda found: _replaced(found, folder), text), encoding="utf-8")
        shutil.copyfile(Path(folder) / PICTURE, WALK.with_suffix(".png"))


def _replaced(found: re.Match[str], folder: str) -> str:
    """Return a command with its output, or run an example and return it as it is."""
    if found["command"] is not None:
        return _run(found["command"], folder)
    environment = {**os.environ, "MPLBACKEND": "Agg"}
    subprocess.run([sys.executable, "-c", found["code"]], cwd=folder, env=environment, check=True)
    return found[0]


def _run(command: str, folder: str) -> str:
    """Return a block with a command and its output."""
    name, *arguments = shlex.split(command)
    words = [sys.executable, "-c", CALL] if name == "isolatent" else [name]
    environment = {**os.environ, "COLUMNS": str(LONGEST), "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(
        [*words, *arguments], cwd=folder, env=environment, capture_output=True, text=True
    )
    print(f"{command}: exit code {done.returncode}", file=sys.stderr)
    lines = [line.rstrip() for line in done.stdout.splitlines()]
    errors = [line.rstrip() for line in done.stderr.splitlines()]
    progress = [line for line in errors if line.startswith(PROGRESS)]
    lines += [line for line in errors if line not in progress[:-1]]
    return "\n".join(["```", command, *lines, "```"])


if __name__ == "__main__":
    main()
