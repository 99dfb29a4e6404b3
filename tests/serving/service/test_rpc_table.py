"""The table of the RPCs, against the protocol and the methods that answer them."""

from __future__ import annotations

import pytest

from trtnode.serving.models.repository import ModelRepository
from trtnode.serving.schema.server import ServerConfig
from trtnode.serving.security.authorization import ADMIN_RIGHTS, ANYONE
from trtnode.serving.service.inference_service import InferenceService
from trtnode.serving.service.rpc_table import BROADCAST_RPCS, INFER_RPC, UNARY_RPCS, pool_of
from trtnode.serving.service.unary_rpcs import UnaryRpcs
from trtnode.serving.telemetry.metrics import Metrics
from trtnode.serving.threads.cpu_affinity import PortCores
from trtnode.serving.threads.pools import ThreadPools
from trtnode.serving.threads.request_pool import RequestPool


@pytest.fixture
def pools() -> ThreadPools:
    return ThreadPools(instances=1, max_requests=1, cores=PortCores())


@pytest.fixture
def service() -> InferenceService:
    return InferenceService(
        ModelRepository([], lambda model: None, Metrics()), Metrics(), ServerConfig(), RequestPool(1)
    )


def test_every_unary_rpc_but_inference_has_a_method(service: InferenceService) -> None:
    assert {*UnaryRpcs(service).methods, INFER_RPC} == set(UNARY_RPCS)


def test_changes_of_the_server_are_about_all_processes() -> None:
    assert set(ADMIN_RIGHTS) < BROADCAST_RPCS < set(UNARY_RPCS)


def test_other_processes_answer_what_is_about_all_and_nothing_else(service: InferenceService) -> None:
    rpcs = UnaryRpcs(service, lambda rpc, request, caller: (rpc, request, caller))

    assert rpcs.shared_methods["ModelStatistics"]("request", ANYONE) == ("ModelStatistics", "request", ANYONE)
    assert rpcs.shared_methods["ServerReady"] == rpcs.methods["ServerReady"]
    assert rpcs.methods["ModelStatistics"] != rpcs.shared_methods["ModelStatistics"]


def test_who_waits_for_other_processes_has_threads_of_its_own(pools: ThreadPools) -> None:
    assert pool_of("LogSettings", pools, is_broadcast=True) is pools.broadcast
    assert pool_of("LogSettings", pools, is_broadcast=False) is pools.control
    assert pool_of("ServerReady", pools, is_broadcast=True) is pools.control


@pytest.mark.parametrize("is_broadcast", [False, True])
def test_loads_wait_for_each_other_and_for_nothing_else(pools: ThreadPools, is_broadcast: bool) -> None:
    assert pool_of("RepositoryModelLoad", pools, is_broadcast=is_broadcast) is pools.loading
