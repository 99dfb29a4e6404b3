"""``trtnode keys`` and ``trtnode sign``, and the options by which other commands know whom to trust."""

from __future__ import annotations

import argparse
import json

from trtnode.engines.artifact.keys import generate_key
from trtnode.engines.artifact.signing import sign_model
from trtnode.engines.artifact.trust import Trust
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
