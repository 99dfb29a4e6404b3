"""Long messages, whose tensors are read where they lie."""

from __future__ import annotations

import numpy as np
import pytest

from tests.serving.conftest import Running
from tests.serving.grpc.conftest import triton_inputs


@pytest.mark.parametrize("identity", ["", "7", "77", "777"])
def test_long_requests_are_answered_wherever_in_the_message_their_tensors_begin(shared: Running, identity: str) -> None:
    sent = np.arange(60_000, dtype=np.float32).reshape(-1, 3)

    answer = shared.client.infer("two", triton_inputs(a=sent, b=sent + 1), request_id=identity)

    np.testing.assert_array_equal(answer.as_numpy("sum"), 2 * sent + 1)
    assert answer.get_response().id == identity


def test_long_strings_come_back(shared: Running) -> None:
    sent = np.array([[f"text {n}".encode() for n in range(30_000)]], object)

    np.testing.assert_array_equal(shared.client.infer("STRING", triton_inputs(x=sent)).as_numpy("y"), sent)
