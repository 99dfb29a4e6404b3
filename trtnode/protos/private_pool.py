"""Message classes whose descriptors stay out of protobuf's default pool.

The default pool holds each full name once in a process.
tritonclient registers its own ``inference.*`` messages there, so these live in a private pool.
"""

from __future__ import annotations

from collections.abc import Iterable

from google.protobuf import descriptor_pool, message, message_factory
from google.protobuf.descriptor import Descriptor, FileDescriptor


def load_file(serialized: bytes, name: str) -> FileDescriptor:
    """Add a serialized ``FileDescriptorProto`` to a new pool and return its descriptor, found by file ``name``."""
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(serialized)
    return pool.FindFileByName(name)


def message_classes(file: FileDescriptor, module: str) -> dict[str, type[message.Message]]:
    """Return the classes of the file's top-level messages by name.

    Args:
        file: The file's descriptor.
        module: Module from which the classes can be imported. Frameworks that send messages between processes need it.
    """
    classes = {name: message_factory.GetMessageClass(item) for name, item in file.message_types_by_name.items()}
    for cls in classes.values():
        cls.__module__ = module
    _keep_nested(file.message_types_by_name.values())
    return classes


_kept: list[tuple[Descriptor, type[message.Message]]] = []


def _keep_nested(messages: Iterable[Descriptor]) -> None:
    """Keep the classes of nested messages, which protobuf makes on demand and doesn't keep.

    Otherwise a thread may get a class that the garbage collector destroys in another thread, which ends the process.
    """
    for item in messages:
        _kept.append((item, message_factory.GetMessageClass(item)))
        _keep_nested(item.nested_types)
