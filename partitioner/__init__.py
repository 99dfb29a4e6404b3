"""From a model to its segments: graph view, clean-up, labels, cut, extraction, the TrtNode schema and the report."""

import partitioner.late_imports  # noqa: F401  (before anything imports onnx_ir)
from partitioner.chaining import Source, Stage, chain_stages
from partitioner.errors import (
    CompiledModelError,
    ExternalDataError,
    ModelFileError,
    PartitionError,
    PipelineError,
    UnknownOptionError,
    UnlabelledNodeError,
)
from partitioner.expansion import expand_functions
from partitioner.extract import extract_model
from partitioner.graph import Graph, Node, TensorSpec, describe
from partitioner.labels import SUPPORTED, Allowance, PartitionOptions, Predicate, ReasonCode, Verdict, label_nodes
from partitioner.loading import load_model
from partitioner.partition import Partition, partition_graph
from partitioner.passes import clean_up
from partitioner.report import Report
from partitioner.segments import Segment, cut_segments
from partitioner.trtnode import (
    EmbeddedEngine,
    embed_engines,
    embedded_engine,
    is_compiled,
    is_trtnode,
    replaced_hash,
    replaced_model,
    segment_hash,
)

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
