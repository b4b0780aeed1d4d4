"""Run the commands of docs/first_fit.md, and write what they print below them.

python docs/fill_first_fit.py
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

WALK = Path(__file__).with_name("first_fit.md")
COMMAND = re.compile(r"^```\n((?:isolatent|head) [^\n]*)\n.*?^```$", re.DOTALL | re.MULTILINE)
TABLE = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
CALL = "from isolatent.cli import main; main()"
PROGRESS = "step "  # of lines of which only the last is kept
LONGEST = 110  # characters of a line of output


def main() -> None:
    """Replace the output of every command."""
    text = WALK.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        for code in TABLE.findall(text):
            subprocess.run([sys.executable, "-c", code], cwd=folder, check=True)
        WALK.write_text(COMMAND.sub(lambda found: _run(found[1], folder), text), encoding="utf-8")


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
