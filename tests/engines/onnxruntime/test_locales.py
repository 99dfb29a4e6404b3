"""StringNormalizer runs in ONNX Runtime whatever locales the system has, and never in onnx.reference."""

from __future__ import annotations

import pathlib

import numpy as np
import onnx
import pytest

from trtnode.engines.compile.opening import open_model
from trtnode.engines.errors import ModelLoadError
from trtnode.engines.onnxruntime.session import NativeSession
from workshop import Workshop

ABSENT = "fr_XX.UTF-8"
"""No system has this locale."""

NORMALIZER = 'StringNormalizer <case_change_action = "{}", locale = "{}">'

TEXTS = np.array([["Good DAY"], [""], ["BAD day"]], object)


def normalizer(workshop: Workshop, action: str, locale: str) -> pathlib.Path:
    return workshop.write(f"g (string[N] x) => (string[M] y) {{ y = {NORMALIZER.format(action, locale)} (x) }}")


def pipeline() -> onnx.ModelProto:
    node, info = onnx.helper.make_node, onnx.helper.make_tensor_value_info
    nodes = [
        node("Reshape", ["x", "row"], ["texts"]),
        node("StringNormalizer", ["texts"], ["lower"], case_change_action="LOWER", locale=ABSENT),
        node(
            "Tokenizer",
            ["lower"],
            ["tokens"],
            domain="com.microsoft",
            mark=0,
            mincharnum=1,
            pad_value="#",
            separators=[" "],
        ),
        node(
            "TfIdfVectorizer",
            ["tokens"],
            ["counts"],
            max_gram_length=1,
            min_gram_length=1,
            max_skip_count=0,
            mode="TF",
            ngram_counts=[0],
            ngram_indexes=[0, 1, 2],
            pool_strings=["good", "bad", "day"],
        ),
        node(
            "LinearClassifier",
            ["counts"],
            ["label", "scores"],
            domain="ai.onnx.ml",
            coefficients=[-1.0, 1.0, 0.0, 1.0, -1.0, 0.0],
            intercepts=[0.1, -0.1],
            classlabels_ints=[0, 1],
        ),
    ]
    text, floats, integers = onnx.TensorProto.STRING, onnx.TensorProto.FLOAT, onnx.TensorProto.INT64
    outputs = [info("label", integers, ["N"]), info("scores", floats, ["N", 2])]
    graph = onnx.helper.make_graph(nodes, "texts", [info("x", text, ["N", 1])], outputs)
    graph.initializer.append(onnx.numpy_helper.from_array(np.array([-1]), "row"))
    domains = {"": 18, "com.microsoft": 1, "ai.onnx.ml": 1}
    return onnx.helper.make_model(
        graph, ir_version=8, opset_imports=[onnx.helper.make_opsetid(*pair) for pair in domains.items()]
    )


@pytest.mark.parametrize("engine", ["openvino", "native"])
def test_an_empty_text_has_an_answer_in_its_row(engine: str, workshop: Workshop, tmp_path: pathlib.Path) -> None:
    onnx.save(pipeline(), tmp_path / "texts.onnx")

    for executable in (
        open_model(tmp_path / "texts.onnx"),
        open_model(workshop.compile_file(tmp_path / "texts.onnx", engine=engine)),
    ):
        assert executable.run({"x": TEXTS})["label"].tolist() == [1, 0, 0]
        assert executable.facts.reference_nodes == []


def test_letters_change_as_in_every_locale_of_unicode(workshop: Workshop, caplog: pytest.LogCaptureFixture) -> None:
    texts = np.array(["Straße ÀÉ", "", "Ωσ"], object)

    lower = NativeSession(normalizer(workshop, "LOWER", ABSENT)).run({"x": texts})
    upper = NativeSession(normalizer(workshop, "UPPER", ABSENT)).run({"x": texts})

    assert [lower[0].tolist(), upper[0].tolist()] == [["straße àé", "", "ωσ"], ["STRAßE ÀÉ", "", "ΩΣ"]]
    assert f"locale {ABSENT} isn't installed" in caplog.text


REFUSED = r"'\w+:y'.* StringNormalizer, and onnx.reference must not run it, because it drops empty texts.*shape"


@pytest.mark.parametrize("engine", ["openvino", "native"])
@pytest.mark.parametrize(
    ("shape", "locale"),
    [
        pytest.param("[N]", "tr_XX.UTF-8", id="a-language-with-letters-of-its-own"),
        pytest.param("[N, 1]", "en_US.UTF-8", id="a-column"),
    ],
)
def test_what_onnxruntime_refuses_is_refused(shape: str, locale: str, engine: str, workshop: Workshop) -> None:
    text = f"g (string{shape} x) => (string{shape} y) {{ y = {NORMALIZER.format('LOWER', locale)} (x) }}"
    source = workshop.write(text)

    with pytest.raises(ModelLoadError, match=REFUSED):
        open_model(source)
    with pytest.raises(ModelLoadError, match=REFUSED):
        workshop.compile(source, engine=engine)


def test_weights_beside_the_file_come_along(workshop: Workshop, tmp_path: pathlib.Path) -> None:
    source = workshop.write(
        f"""g (string[2] x, float[2] a) => (string[2] y, float[2] b) <float[2] w = {{1, 2}}> {{
            y = {NORMALIZER.format("LOWER", ABSENT)} (x)
            b = Mul (a, w)
        }}"""
    )
    onnx.save(onnx.load(source), tmp_path / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)

    results = NativeSession(tmp_path / "m.onnx").run({"x": np.array(["A", ""], object), "a": np.ones(2, np.float32)})

    assert [r.tolist() for r in results] == [["a", ""], [1.0, 2.0]]
