"""Runs an ONNX file in Triton's Python backend; its model repository holds this file as ``1/model.py``."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import onnxruntime
import triton_python_backend_utils as backend


class TritonPythonModel:
    """The file that the parameter ``file`` names."""

    def initialize(self, arguments: dict[str, str]) -> None:
        """Open the file."""
        file = json.loads(arguments["model_config"])["parameters"]["file"]["string_value"]
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(file, options)
        self._inputs = [tensor.name for tensor in self._session.get_inputs()]
        self._outputs = [tensor.name for tensor in self._session.get_outputs()]

    def execute(self, requests: list[Any]) -> list[Any]:
        """Answer the requests of one batch with one run."""
        feeds = {
            name: [backend.get_input_tensor_by_name(r, name).as_numpy() for r in requests] for name in self._inputs
        }
        joined = {name: arrays[0] if len(arrays) == 1 else np.concatenate(arrays) for name, arrays in feeds.items()}
        ends = np.cumsum([len(array) for array in feeds[self._inputs[0]]])[:-1]
        results = [np.split(result, ends) for result in self._session.run(self._outputs, joined)]
        return [
            backend.InferenceResponse([backend.Tensor(*output) for output in zip(self._outputs, arrays, strict=True)])
            for arrays in zip(*results, strict=True)
        ]
