"""The blocks of docs/python.md happen as they are written."""

import re
from pathlib import Path

from conftest import Start

ROOT = Path(__file__).parent.parent.parent


def test_every_block_of_the_document_runs(start: Start, tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    source = (ROOT / "examples/train.py").read_text()
    program.write_text(source.replace("    while True:\n", "    print('ready', flush=True)\n    while True:\n"))
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs/python.md").read_text(), re.MULTILINE | re.DOTALL)
    assert len(blocks) > 5
    names: dict[str, object] = {"pid": start(program).pid}
    for block in blocks:
        exec(compile(block, "docs/python.md", "exec"), names)
