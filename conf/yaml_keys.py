"""Finds a key that a YAML mapping gives twice: the reader would keep the last, unsaid."""

import yaml


def repeated_key(text: str) -> str | None:
    """Which key stands twice in one mapping, with both lines (from 1); None if none does.

    A key merged in by `<<` may be given again: that is what a merge is for. Raises
    yaml.YAMLError for what is no YAML.
    """
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    waiting: list[yaml.Node] = [] if root is None else [root]
    seen: set[int] = set()  # an alias may lead back to what holds it
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
                    return _said(key.value, lines[name], line)
                lines[name] = line
    return None


def _said(key: str, first: int, second: int) -> str:
    if first == second:
        return f"{key} is given twice on line {first}"
    return f"{key} is given on line {first} and again on line {second}"
