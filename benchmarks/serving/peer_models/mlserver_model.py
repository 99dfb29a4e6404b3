"""Runs an ONNX file in MLServer; imported by MLServer's own Python."""

from __future__ import annotations

import onnxruntime
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse


class OnnxMLServerModel(MLModel):  # type: ignore[misc]  # installed in another environment
    """The file that ``parameters.uri`` names."""

    async def load(self) -> bool:
        """Open the file."""
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(self.settings.parameters.uri, options)
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Answer one request."""
        feeds = {tensor.name: NumpyCodec.decode_input(tensor) for tensor in payload.inputs}
        names = [output.name for output in self._session.get_outputs()]
        results = zip(names, self._session.run(names, feeds), strict=True)
        outputs = [NumpyCodec.encode_output(name, array) for name, array in results]
        return InferenceResponse(id=payload.id, model_name=self.name, outputs=outputs)
