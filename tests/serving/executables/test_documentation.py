"""The examples of the documentation are valid."""

from __future__ import annotations

import pathlib
import re

import onnx
import pytest

from trtnode.serving.config.load import load_config

ROOT = pathlib.Path(__file__).parents[3]
IMAGES = """<ir_version: 8, opset_import: ["": 13]>
g (float[N, 3, H, W] image) => (float[N, 3, H, W] large) { large = Neg(image) }"""


@pytest.mark.parametrize(("section", "files"), [("Tiles", 1), ("Variants", 3)])
def test_the_example_of_a_section_is_read(section: str, files: int, tmp_path: pathlib.Path) -> None:
    text = (ROOT / "docs" / "serving.md").read_text(encoding="utf-8").partition(f"## {section}\n")[2]
    example = re.search(r"```yaml\n(.*?)```", text, re.DOTALL)
    assert example is not None
    names = re.findall(r"path: (\S+\.onnx)", example[1])
    for name in names:
        onnx.save(onnx.parser.parse_model(IMAGES), tmp_path / name)
    (tmp_path / "servable.yaml").write_text(example[1])

    (model,) = load_config(tmp_path / "servable.yaml").models

    assert len(names) == files
    assert len(model.variants or [model.path]) == files
