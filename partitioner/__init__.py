"""Partitions ONNX models: loads, cleans, labels and cuts them, writes TrtNodes, and reports on the result.

A public name is imported on first use, so that light modules cost no library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import partitioner.lazy_imports  # (before anything imports onnx_ir)
import partitioner.lazy_names

if TYPE_CHECKING:
    from partitioner.compiled.trtnode import (
        EmbeddedEngine,
        embed_engines,
        embedded_engine,
        is_compiled,
        is_trtnode,
        replaced_hash,
        replaced_model,
        segment_hash,
    )
    from partitioner.cut.function_expansion import expand_functions
    from partitioner.cut.labels import (
        SUPPORTED,
        Allowance,
        PartitionOptions,
        Predicate,
        ReasonCode,
        Verdict,
        label_nodes,
    )
    from partitioner.cut.partition import Partition, partition_graph
    from partitioner.cut.report import Report
    from partitioner.cut.segments import Segment, cut_segments
    from partitioner.errors import (
        CompiledModelError,
        ExternalDataError,
        ModelFileError,
        PartitionError,
        PipelineError,
        UnknownOptionError,
        UnlabelledNodeError,
    )
    from partitioner.graph.extraction import extract_model
    from partitioner.graph.view import Graph, Node, TensorSpec, describe
    from partitioner.model.loading import load_model
    from partitioner.passes.clean_up import clean_up
    from partitioner.pipelines.chaining import Source, Stage, chain_stages

__all__ = [
    "SUPPORTED",
    "Allowance",
    "CompiledModelError",
    "EmbeddedEngine",
    "ExternalDataError",
    "Graph",
    "ModelFileError",
    "Node",
    "Partition",
    "PartitionError",
    "PartitionOptions",
    "PipelineError",
    "Predicate",
    "ReasonCode",
    "Report",
    "Segment",
    "Source",
    "Stage",
    "TensorSpec",
    "UnknownOptionError",
    "UnlabelledNodeError",
    "Verdict",
    "chain_stages",
    "clean_up",
    "cut_segments",
    "describe",
    "embed_engines",
    "embedded_engine",
    "expand_functions",
    "extract_model",
    "is_compiled",
    "is_trtnode",
    "label_nodes",
    "load_model",
    "partition_graph",
    "replaced_hash",
    "replaced_model",
    "segment_hash",
]

_HOMES = {
    "SUPPORTED": "partitioner.cut.labels:SUPPORTED",
    "Allowance": "partitioner.cut.labels:Allowance",
    "CompiledModelError": "partitioner.errors:CompiledModelError",
    "EmbeddedEngine": "partitioner.compiled.trtnode:EmbeddedEngine",
    "ExternalDataError": "partitioner.errors:ExternalDataError",
    "Graph": "partitioner.graph.view:Graph",
    "ModelFileError": "partitioner.errors:ModelFileError",
    "Node": "partitioner.graph.view:Node",
    "Partition": "partitioner.cut.partition:Partition",
    "PartitionError": "partitioner.errors:PartitionError",
    "PartitionOptions": "partitioner.cut.labels:PartitionOptions",
    "PipelineError": "partitioner.errors:PipelineError",
    "Predicate": "partitioner.cut.labels:Predicate",
    "ReasonCode": "partitioner.cut.labels:ReasonCode",
    "Report": "partitioner.cut.report:Report",
    "Segment": "partitioner.cut.segments:Segment",
    "Source": "partitioner.pipelines.chaining:Source",
    "Stage": "partitioner.pipelines.chaining:Stage",
    "TensorSpec": "partitioner.graph.view:TensorSpec",
    "UnknownOptionError": "partitioner.errors:UnknownOptionError",
    "UnlabelledNodeError": "partitioner.errors:UnlabelledNodeError",
    "Verdict": "partitioner.cut.labels:Verdict",
    "chain_stages": "partitioner.pipelines.chaining:chain_stages",
    "clean_up": "partitioner.passes.clean_up:clean_up",
    "cut_segments": "partitioner.cut.segments:cut_segments",
    "describe": "partitioner.graph.view:describe",
    "embed_engines": "partitioner.compiled.trtnode:embed_engines",
    "embedded_engine": "partitioner.compiled.trtnode:embedded_engine",
    "expand_functions": "partitioner.cut.function_expansion:expand_functions",
    "extract_model": "partitioner.graph.extraction:extract_model",
    "is_compiled": "partitioner.compiled.trtnode:is_compiled",
    "is_trtnode": "partitioner.compiled.trtnode:is_trtnode",
    "label_nodes": "partitioner.cut.labels:label_nodes",
    "load_model": "partitioner.model.loading:load_model",
    "partition_graph": "partitioner.cut.partition:partition_graph",
    "replaced_hash": "partitioner.compiled.trtnode:replaced_hash",
    "replaced_model": "partitioner.compiled.trtnode:replaced_model",
    "segment_hash": "partitioner.compiled.trtnode:segment_hash",
}
"""The module and the name there of each public name."""

__getattr__, __dir__ = partitioner.lazy_names.names_on_first_use(__name__, _HOMES)
