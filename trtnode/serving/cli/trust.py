"""``trtnode keys``, ``sign``, ``merge`` and ``strip``, and the options by which other commands know whom to trust."""

from __future__ import annotations

import argparse
import json
import pathlib

from trtnode.engines.artifact.keys import generate_key
from trtnode.engines.artifact.signing import sign_model
from trtnode.engines.artifact.trust import Trust
from trtnode.engines.compile.compiled_files import merge_files, strip_file
from trtnode.partitioner.wording import counted
from trtnode.serving.cli.option_values import cache_folder_from


def trust_from(arguments: argparse.Namespace) -> Trust:
    """The keys of engines that may run, by command-line arguments.

    Raises:
        KeyFileError: A file is no public key.
        InvalidOptionError: ``--cache`` begins with the home folder of a user who has none.
    """
    trust = Trust.of(arguments.trust_key, arguments.allow_unsigned)
    folder = cache_folder_from(arguments)
    return trust if folder is None else trust.on_machine(folder)


def keys(arguments: argparse.Namespace) -> int:
    """Make a key pair.

    Raises:
        KeyFileError: A file is there already, or can't be written.
    """
    public = generate_key(arguments.output)
    print(f"Wrote {arguments.output}, which signs and must stay secret, and {public}, for trust.keys of servable.yaml.")
    return 0


def sign(arguments: argparse.Namespace) -> int:
    """Sign a compiled model, in place unless an output is named.

    Raises:
        PartitionError: The file is no model.
        EngineError: The key or an engine can't be used, or the file can't be written.
    """
    output = arguments.output or arguments.model
    signed = sign_model(arguments.model, output, arguments.key)
    if arguments.json:
        print(json.dumps({"output": str(output), "engines_signed": signed}))
    else:
        print(f"Wrote {output}: {counted(signed, 'engine')} signed.")
    return 0


def merge(arguments: argparse.Namespace) -> int:
    """Write the engines of several compiled files into one.

    Raises:
        PartitionError: A file is no model, or they differ.
        EngineError: The file can't be written.
    """
    return _tell(arguments, merge_files(arguments.models, arguments.output), arguments.output)


def strip(arguments: argparse.Namespace) -> int:
    """Write a compiled model without some engines, or without what they replace, in place unless an output is named.

    Raises:
        PartitionError: The file is no model.
        EngineError: Engines are missing, or the file can't be written.
    """
    output = arguments.output or arguments.model
    left = strip_file(arguments.model, output, keep=arguments.keep, fallback=arguments.fallback)
    return _tell(arguments, left, output)


def _tell(arguments: argparse.Namespace, engines: int, output: pathlib.Path) -> int:
    if arguments.json:
        print(json.dumps({"output": str(output), "engines": engines}))
    else:
        print(f"Wrote {output}: {counted(engines, 'engine')}.")
    return 0
