"""The slips that `bench.mutation` makes in a module: one at a time, then taken back.

Left out, as nothing a caller computes hangs on it: docstrings and all text that is not a
name, annotations, decorators, imports, `assert`, what a `raise` says, f-strings, the bodies
of protocols and what runs only as a program; a literal's sign, as its value is changed; and
the -1 of a `reshape`, as any negative number says the same to numpy.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import NamedTuple

OTHER_OPERATOR: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.MatMult: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
}
OTHER_NAME = {
    "min": "max",
    "max": "min",
    "minimum": "maximum",
    "maximum": "minimum",
    "any": "all",
    "all": "any",
    "zeros": "ones",
    "ones": "zeros",
    "zeros_like": "ones_like",
}
# Calls `x.name(…)` that may turn into `x`.
DROPPED = {"abs", "clamp", "clamp_min", "copy", "detach", "exp", "float", "log", "roll"}
DROPPED |= {"masked_fill"}
ABOUT = 30  # characters each side of a change are shown
NEGATED = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)


@dataclass(frozen=True)
class Mutant:
    """A slip: where, and the code before and after."""

    line: int
    function: str
    before: str
    after: str

    @property
    def text(self) -> str:
        """As the page has it."""
        return f"`{self.function}`: `{self.before}` → `{self.after}`"


class Place(NamedTuple):
    """What to set to change a node."""

    owner: ast.AST
    name: str
    at: int | None

    def put(self, node: ast.AST) -> None:
        """Sets it."""
        if self.at is None:
            setattr(self.owner, self.name, node)
        else:
            getattr(self.owner, self.name)[self.at] = node


def mutants(tree: ast.Module) -> Iterator[Mutant]:
    """Each slip in turn; `tree` is changed until the next is asked for."""
    for place, node, shown, function in list(_places(tree, "module", tree)):
        for other in _others(node):
            before = ast.unparse(shown)
            place.put(ast.fix_missing_locations(ast.copy_location(other, node)))
            after = ast.unparse(other if shown is node else shown)
            line = getattr(node, "lineno", getattr(shown, "lineno", 0))
            yield Mutant(line, function, *_changed(before, after))
            place.put(node)


def _changed(before: str, after: str) -> tuple[str, str]:
    """The first lines that differ, of long ones what is about the place."""
    pairs = zip(before.splitlines(), after.splitlines(), strict=False)
    old, new = next((old.strip(), new.strip()) for old, new in pairs if old != new)
    start = max(_alike(old, new) - ABOUT, 0)
    end = max(_alike(old[::-1], new[::-1]) - ABOUT, 0)
    return old[start : len(old) - end], new[start : len(new) - end]


def _alike(one: str, other: str) -> int:
    """How many characters both begin with."""
    return len([*takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))])


def _places(
    node: ast.AST, function: str, shown: ast.AST
) -> Iterator[tuple[Place, ast.AST, ast.AST, str]]:
    """All nodes that count, each with its statement and the function it is in."""
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "decorator_list", "bases", "msg", "ctx"}:
            continue
        for index, child in enumerate(value if isinstance(value, list) else [value]):
            if not isinstance(child, ast.AST) or _is_left_out(child, node):
                continue
            within, whole = function, shown
            if isinstance(child, ast.stmt):
                whole = child
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                within = child.name if function == "module" else f"{function}.{child.name}"
            place = Place(node, name, index if isinstance(value, list) else None)
            yield place, child, whole, within
            if not isinstance(child, ast.Raise):
                yield from _places(child, within, whole)


def _is_left_out(node: ast.AST, within: ast.AST) -> bool:
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant | ast.Yield)
    if isinstance(node, ast.ClassDef):
        return any(ast.unparse(base) == "Protocol" for base in node.bases)
    if isinstance(node, ast.If):
        return "__name__" in ast.unparse(node.test) or "TYPE_CHECKING" in ast.unparse(
            node.test
        )
    if isinstance(within, ast.Call) and ast.unparse(within.func).endswith(".reshape"):
        return ast.unparse(node) == "-1"
    return isinstance(node, ast.JoinedStr | ast.Import | ast.ImportFrom | ast.Assert)


def _others(node: ast.AST) -> Iterator[ast.AST]:
    """What may stand in the place of a node."""
    other = OTHER_OPERATOR.get(type(node))
    if other is not None:
        yield other()
    if isinstance(node, ast.Constant):
        yield from _constants(node.value)
    elif isinstance(node, ast.UnaryOp) and not isinstance(node.operand, ast.Constant):
        yield node.operand
    elif isinstance(node, ast.Call):
        yield from _calls(node)
    elif isinstance(node, ast.If | ast.IfExp | ast.While):
        yield from _conditions(node)
    elif isinstance(node, ast.stmt):
        yield from _statements(node)


def _constants(value: object) -> Iterator[ast.AST]:
    if isinstance(value, bool):
        yield ast.Constant(not value)
    elif isinstance(value, int):
        yield ast.Constant(value + 1)
    elif isinstance(value, float):
        yield ast.Constant(2 * value if value else 1.0)
    elif isinstance(value, str) and value.isidentifier():
        yield ast.Constant(value + "_")


def _calls(node: ast.Call) -> Iterator[ast.AST]:
    called = node.func
    if isinstance(called, ast.Attribute):
        if called.attr in DROPPED and ast.unparse(called.value) not in {"np", "torch"}:
            yield called.value
        if called.attr in OTHER_NAME:
            swapped = ast.Attribute(called.value, OTHER_NAME[called.attr], called.ctx)
            yield ast.Call(swapped, node.args, node.keywords)
    elif isinstance(called, ast.Name) and called.id in OTHER_NAME:
        yield ast.Call(
            ast.Name(OTHER_NAME[called.id], ast.Load()), node.args, node.keywords
        )


def _conditions(node: ast.If | ast.IfExp | ast.While) -> Iterator[ast.AST]:
    """The other way round, unless an operator's slip is just that."""
    test = node.test
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], NEGATED):
        return
    if isinstance(node, ast.While) or isinstance(test, ast.UnaryOp):
        return
    negated = ast.UnaryOp(ast.Not(), test)
    if isinstance(node, ast.If):
        yield ast.If(negated, node.body, node.orelse)
    else:
        yield ast.IfExp(negated, node.body, node.orelse)


def _statements(node: ast.stmt) -> Iterator[ast.AST]:
    """Another way out of a loop, or nothing in place of what only has an effect."""
    if isinstance(node, ast.Continue):
        yield ast.Break()
        return
    sets_a_part = isinstance(node, ast.Assign) and not isinstance(
        node.targets[0], ast.Name | ast.Tuple
    )
    if sets_a_part or isinstance(node, ast.Expr | ast.AugAssign | ast.Raise):
        yield ast.Pass()
