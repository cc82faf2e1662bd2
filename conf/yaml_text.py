"""Reads YAML; a key that a mapping gives twice is refused, where others keep the last."""

from typing import Any

import yaml


class RepeatedKeyError(ValueError):
    """A key stands twice in one mapping; the message has both lines."""


def load_yaml(text: str) -> Any:
    """What a YAML document says, in Python's own types: checked by whoever asked.

    A key merged in by `<<` may be given again: that is what a merge is for. Raises
    yaml.YAMLError for what is no YAML, and RepeatedKeyError.
    """
    loader = yaml.SafeLoader(text)
    try:
        root = loader.get_single_node()
        if root is None:
            return None
        _refuse_repeated(root)
        return loader.construct_document(root)
    finally:
        loader.dispose()


def _refuse_repeated(root: yaml.Node) -> None:
    waiting, seen = [root], set[int]()  # an alias may lead back to what holds it
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting.extend(node.value)
        if isinstance(node, yaml.MappingNode):
            lines: dict[tuple[str, str], int] = {}
            for key, value in node.value:
                waiting.append(value)
                if not isinstance(key, yaml.ScalarNode):
                    continue
                line, name = key.start_mark.line + 1, (key.tag, key.value)
                if name in lines:
                    raise RepeatedKeyError(_said(key.value, lines[name], line))
                lines[name] = line


def _said(key: str, first: int, second: int) -> str:
    if first == second:
        return f"{key} is given twice on line {first}; keep one of them"
    return f"{key} is given on line {first} and again on line {second}; keep one of them"
