"""Every model of the collection, as one fixture."""

from __future__ import annotations

import pytest

from model_cases import CASES, Case


@pytest.fixture(params=[pytest.param(case, id=name) for name, case in CASES.items()])
def case(request: pytest.FixtureRequest) -> Case:
    return request.param
