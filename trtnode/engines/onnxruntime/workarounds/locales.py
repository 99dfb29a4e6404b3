"""StringNormalizer where the system lacks a locale, as slim containers lack en_US.UTF-8.

ONNX Runtime takes from it how to change the case of letters, and refuses the model without it. All locales of the GNU C
library have one table for that, C.UTF-8 among them, which is always installed; only those of Turkic languages differ.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

import onnx

from trtnode.partitioner.model import protobuf_walk

logger = logging.getLogger(__name__)

REFUSAL = "Failed to construct locale"
"""Part of ONNX Runtime's message."""

UNIVERSAL = "C.UTF-8"

DEFAULT = "en_US.UTF-8"
"""Of nodes that name none."""

OTHER_LETTERS = ("az", "crh", "ku", "tr", "tt")
"""Languages whose i has another capital letter."""


def with_universal_locale(model: onnx.ModelProto) -> bool:
    """Let the StringNormalizers of a model use the locale that every system has; return whether one did not.

    Those of languages with letters of their own keep theirs, so that ONNX Runtime refuses them.
    """
    changed = set()
    for node in _normalizers(model):
        named = next((a for a in node.attribute if a.name == "locale"), None)
        locale = named.s.decode(errors="replace") if named else DEFAULT
        if locale == UNIVERSAL or locale.split("_")[0] in OTHER_LETTERS:
            continue
        if named:
            node.attribute.remove(named)
        node.attribute.append(onnx.helper.make_attribute("locale", UNIVERSAL))
        changed.add(locale)
    if changed:
        names = ", ".join(sorted(changed))
        logger.warning("StringNormalizer runs with the letters of %s: locale %s isn't installed", UNIVERSAL, names)
    return bool(changed)


def _normalizers(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    return (n for n in protobuf_walk.nodes(model) if n.op_type == "StringNormalizer" and n.domain in ("", "ai.onnx"))
