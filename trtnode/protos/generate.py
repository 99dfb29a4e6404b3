"""Writes inference_pb2.py and inference_pb2.pyi beside inference.proto: ``python protos/generate.py``.

protoc's own Python output registers messages in protobuf's default pool, where they clash with those of tritonclient.
So this script takes only the descriptor and the type stub from protoc, and writes the module itself.
"""

from __future__ import annotations

import importlib.resources
import pathlib
import re
import sys
import tempfile

from google.protobuf import descriptor_pb2
from grpc_tools import protoc

SOURCE = pathlib.Path(__file__).with_name("inference.proto")
_BYTES_PER_LINE = 72


def main() -> int:
    """Write both files next to the source; return the exit code."""
    for path, text in generate(SOURCE).items():
        path.write_text(text, encoding="utf-8")
        sys.stdout.write(f"wrote {path}\n")
    return 0


def generate(source: pathlib.Path) -> dict[pathlib.Path, str]:
    """Return the text of each generated file by its path."""
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        _run_protoc(source, work)
        files = descriptor_pb2.FileDescriptorSet.FromString((work / "descriptors.bin").read_bytes())
        stub = strict_stub((work / f"{source.stem}_pb2.pyi").read_text(encoding="utf-8"))
    (descriptor,) = files.file
    return {
        source.with_name(f"{source.stem}_pb2.py"): module_text(descriptor),
        source.with_name(f"{source.stem}_pb2.pyi"): stub,
    }


def module_text(descriptor: descriptor_pb2.FileDescriptorProto) -> str:
    """Return the Python module that loads ``descriptor`` into a private pool and names its top-level messages."""
    serialized = descriptor.SerializeToString(deterministic=True)
    pieces = [serialized[start : start + _BYTES_PER_LINE] for start in range(0, len(serialized), _BYTES_PER_LINE)]
    return "\n".join(
        [
            f'"""Messages of {descriptor.name}. Written by protos/generate.py; do not edit."""',
            "",
            "from trtnode.protos import private_pool",
            "",
            "DESCRIPTOR = private_pool.load_file(",
            *[f"    {piece!r}" for piece in pieces[:-1]],
            f"    {pieces[-1]!r},",
            f"    {descriptor.name!r},",
            ")",
            "",
            "_classes = private_pool.message_classes(DESCRIPTOR, __name__)",
            *[f"{message.name} = _classes[{message.name!r}]" for message in descriptor.message_type],
            "",
        ]
    )


def strict_stub(text: str) -> str:
    """Return protoc's stub with the types that it omits and mypy --strict requires: of ``Mapping``, and of ``kwargs``.

    Fields that are called like a keyword of Python stand in ``kwargs``.
    """
    return re.sub(r"_Mapping\]", "_Mapping[str, object]]", text).replace("**kwargs)", "**kwargs: object)")


def _run_protoc(source: pathlib.Path, output: pathlib.Path) -> None:
    well_known = importlib.resources.files("grpc_tools") / "_proto"
    arguments = [
        "protoc",
        f"--proto_path={source.parent}",
        f"--proto_path={well_known}",
        f"--descriptor_set_out={output / 'descriptors.bin'}",
        f"--pyi_out={output}",
        source.name,
    ]
    if protoc.main(arguments) != 0:
        raise SystemExit(f"protoc refused {source}; its message is above.")


if __name__ == "__main__":
    sys.exit(main())
