from __future__ import annotations

import re

import pytest

from trtnode.protos import InferParameter
from trtnode.serving.errors import InvalidRequestError
from trtnode.serving.protocol.parameters import class_count, queue_options

NO_SEQUENCES = "the model has no sequences; send the request without the parameter "


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        pytest.param("sequence_start", {"int64_param": 1}, "'sequence_start' should be a bool_param", id="number"),
        pytest.param("sequence_end", {"string_param": "true"}, "'sequence_end' should be a bool_param", id="text"),
        pytest.param("sequence_id", {"bool_param": True}, "should be an int64_param or a string_param", id="truth"),
        pytest.param("sequence_id", {}, "should be an int64_param or a string_param", id="nothing"),
        pytest.param("sequence_id", {"int64_param": -3}, f"{NO_SEQUENCES}'sequence_id'", id="sequence"),
        pytest.param("sequence_id", {"string_param": "a"}, f"{NO_SEQUENCES}'sequence_id'", id="named-sequence"),
        pytest.param("sequence_start", {"bool_param": True}, f"{NO_SEQUENCES}'sequence_start'", id="start"),
        pytest.param("sequence_end", {"bool_param": True}, f"{NO_SEQUENCES}'sequence_end'", id="end"),
    ],
)
def test_parts_of_sequences_are_refused(name: str, value: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=re.escape(message)):
        queue_options({name: InferParameter(**value)})


def test_the_values_that_stand_for_no_sequence_are_taken() -> None:
    parameters = {
        "sequence_id": InferParameter(int64_param=0),
        "sequence_start": InferParameter(bool_param=False),
        "sequence_end": InferParameter(bool_param=False),
    }

    assert queue_options(parameters) == (0, 0)
    assert queue_options({"sequence_id": InferParameter(string_param="")}) == (0, 0)


@pytest.mark.parametrize(
    "value", [{"string_param": "3"}, {"int64_param": -1}, {"bool_param": True}, {"int64_param": 0}]
)
def test_a_classification_needs_a_number_from_one(value: dict[str, object]) -> None:
    with pytest.raises(InvalidRequestError, match="the parameter 'classification'"):
        class_count("y", {"classification": InferParameter(**value)})


def test_a_classification_does_not_go_to_shared_memory() -> None:
    parameters = {
        "classification": InferParameter(int64_param=1),
        "shared_memory_region": InferParameter(string_param="r"),
    }

    with pytest.raises(InvalidRequestError, match="can't be a classification and in shared memory; leave one out"):
        class_count("y", parameters)
