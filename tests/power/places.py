"""Places of a module that a small change could hit, and the module with these changes built in, each behind a switch.

Invariant: with every switch off, the rewritten module does what the module does. A place is known by what it says:
module, qualified name, kind, text and ordinal. Line numbers play no part, so that it is found again in code that moved.
"""

import ast
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile
from typing import NamedTuple

KINDS = ("comparison", "arithmetic", "boolean", "constant", "branch", "call", "return")

SWITCH = "_power_switch"
"""The name under which a rewritten module knows the recorder. No module of the package uses it."""

OTHER = {
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
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
"""The operator that takes the place of another one."""

COMPARISONS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)
EMPTY = {"bytes": 'b""', "dict": "{}", "list": "[]", "str": '""', "tuple": "()", "frozenset": "frozenset()"}
"""The expression that takes the place of what a function returns, by the annotation of the function."""


class Place(NamedTuple):
    """One change at one place of the code."""

    module: str
    """The path below `src`."""
    qualname: str
    """Classes and functions around the place, with dots; empty at the level of the module."""
    kind: str
    source: str
    """The text of the expression or statement, as `ast.unparse` writes it."""
    becomes: str
    """The text after the change."""
    ordinal: int
    """0 for the first such text with such a change in this qualified name."""
    imported: bool = False
    """Whether the change acts when the module is imported: in a constant of the module, or a default."""


class Change(NamedTuple):
    """A place, with the nodes that it is about."""

    place: Place
    node: ast.AST
    function: ast.FunctionDef | ast.AsyncFunctionDef | None
    """The function for whose parameter the place is a default."""
    constant: str
    """The constant of the module in whose value the place is, or nothing."""


class _Finder:
    """Walks a module in the order of its text and notes every possible change."""

    def __init__(self, module: str) -> None:
        self.module = module
        self.found: list[Change] = []
        self.seen: Counter[tuple[str, ...]] = Counter()
        self.names: list[str] = []
        self.returns = ""
        self.function: ast.FunctionDef | ast.AsyncFunctionDef | None = None
        self.constant = ""

    def note(self, node: ast.AST, kind: str, source: str, becomes: str) -> None:
        key = (".".join(self.names), kind, source, becomes)
        imported = self.function is not None or bool(self.constant)
        place = Place(self.module, *key, ordinal=self.seen[key], imported=imported)
        self.seen[key] += 1
        self.found.append(Change(place, node, self.function, self.constant))

    def module_body(self, body: Iterable[ast.stmt]) -> None:
        """The level of the module: functions, classes, and the values of constants."""
        for node in body:
            match node:
                case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                    self.definition(node)
                case (
                    ast.Assign(targets=[ast.Name(id=name)], value=value)
                    | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
                ) if not name.startswith("__"):
                    self.constant = name
                    self.visit(value)
                    self.constant = ""

    def definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        """A class is a list of methods: its fields and decorators are declarations, and are left out."""
        self.names.append(node.name)
        if isinstance(node, ast.ClassDef):
            for child in node.body:
                if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                    self.definition(child)
        else:
            outer = self.returns, self.function
            self.function = node
            for default in (*node.args.defaults, *node.args.kw_defaults):
                if default is not None:
                    self.visit(default)
            self.function = None
            self.returns = ast.unparse(node.returns) if node.returns is not None else ""
            for child in node.body:
                self.visit(child)
            self.returns, self.function = outer
        self.names.pop()

    def visit(self, node: ast.AST) -> None:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                self.definition(node)
                return
            case ast.Assert() | ast.JoinedStr() | ast.pattern() | ast.Import() | ast.ImportFrom():
                return
            case ast.AnnAssign(value=value):
                if value is not None:
                    self.visit(value)
                return
            case ast.Call(func=ast.Name(id="cast" | "TypeVar" | "NewType")):
                return
        for kind, becomes in _changes(node, self.returns):
            self.note(node, kind, _shown(node), becomes)
        for child in ast.iter_child_nodes(node):
            self.visit(child)


def _shown(node: ast.AST) -> str:
    """The text of a node; a branch is shown by its condition."""
    return f"if {ast.unparse(node.test)}" if isinstance(node, ast.If) else ast.unparse(node)


def _changes(node: ast.AST, returns: str) -> Iterator[tuple[str, str]]:
    """The kinds of change that a node allows, each with the text after it."""
    match node:
        case ast.Compare(ops=[op]) if type(op) in OTHER:
            yield "comparison", ast.unparse(_changed(node))
        case ast.BinOp(op=op, left=left, right=right) if type(op) in OTHER and not (_text(left) or _text(right)):
            yield "arithmetic", ast.unparse(_changed(node))
        case ast.AugAssign(op=op, value=value) if type(op) in OTHER and not _text(value):
            yield "arithmetic", ast.unparse(_changed(node))
        case ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
            yield "boolean", ast.unparse(_changed(node))
        case ast.Constant(value=bool() | int() | float()):
            yield "constant", ast.unparse(_changed(node))
        case ast.If(test=test):
            yield "branch", f"if {ast.unparse(ast.UnaryOp(ast.Not(), test))}"
            yield "branch", "if False"
        case ast.Expr(value=ast.Call(func=func) | ast.Await(value=ast.Call(func=func))):
            if not ast.unparse(func).startswith("super()"):
                yield "call", "pass"
        case ast.Return(value=ast.expr() as value):
            if ast.unparse(value) not in ("None", "True", "False", EMPTY.get(returns.partition("[")[0])):
                yield "return", f"return {_returned(returns, value)}"


def _text(node: ast.AST) -> bool:
    """Whether an operand is text or a list, for which `+` has no counterpart."""
    match node:
        case ast.JoinedStr() | ast.Constant(value=str() | bytes()) | ast.List() | ast.Tuple() | ast.ListComp():
            return True
        case ast.BinOp(left=left, right=right):
            return _text(left) or _text(right)
    return False


def _changed(node: ast.AST) -> ast.AST:
    """The node with its operator, or its value, replaced."""
    match node:
        case ast.Compare(left=left, ops=[op], comparators=comparators):
            return ast.Compare(left, [OTHER[type(op)]()], comparators)
        case ast.BinOp(left=left, op=op, right=right):
            return ast.BinOp(left, OTHER[type(op)](), right)
        case ast.AugAssign(target=target, op=op, value=value):
            return ast.AugAssign(target, OTHER[type(op)](), value)
        case ast.BoolOp(op=op, values=values):
            return ast.BoolOp(OTHER[type(op)](), values)
        case ast.UnaryOp(operand=operand):
            return operand
        case ast.Constant(value=bool() as value):
            return ast.Constant(not value)
        case ast.Constant(value=value):
            return ast.Constant(value + 1)
    raise TypeError(node)


def _returned(returns: str, value: ast.expr) -> str:
    """The text of what is returned instead."""
    kind = returns.partition("[")[0]
    if kind == "bool":
        return ast.unparse(ast.UnaryOp(ast.Not(), value))
    if kind in ("int", "float"):
        return ast.unparse(ast.BinOp(value, ast.Add(), ast.Constant(1)))
    return EMPTY.get(kind, "None")


def changes_of(module: str, tree: ast.Module) -> list[Change]:
    """All changes that a module allows, in the order of its text."""
    finder = _Finder(module)
    finder.module_body(tree.body)
    return finder.found


class _Rewriter(ast.NodeTransformer):
    """Puts the chosen changes behind switches, and a mark where a function uses a changed default or constant."""

    def __init__(self, chosen: Mapping[int, list[tuple[int, Change]]], uses: Mapping[str, list[int]]) -> None:
        self.chosen = chosen
        self.uses = uses
        self.defaults: dict[int, list[int]] = {}
        self.depth = 0
        for numbered in chosen.values():
            for number, change in numbered:
                if change.function is not None:
                    self.defaults.setdefault(id(change.function), []).append(number)

    def visit(self, node: ast.AST) -> ast.AST:
        numbered = self.chosen.get(id(node), ())
        marks = self.defaults.get(id(node), ())
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            self.depth += 1
            self.generic_visit(node)
            self.depth -= 1
            at = 1 if ast.get_docstring(node, clean=False) is not None else 0
            node.body[at:at] = [ast.Expr(_call("on", number)) for number in marks]
            return node
        if isinstance(node, ast.JoinedStr | ast.pattern):
            return node
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and self.depth and node.id in self.uses:
            new: ast.AST = node
            for number in self.uses[node.id]:
                new = ast.Subscript(ast.Tuple([_call("on", number), new], ast.Load()), ast.Constant(1), ast.Load())
            return new
        self.generic_visit(node)
        for number, change in numbered:
            node = _switched(node, number, change.place)
        return node


def _call(name: str, number: int) -> ast.Call:
    return ast.Call(ast.Attribute(ast.Name(SWITCH, ast.Load()), name, ast.Load()), [ast.Constant(number)], [])


def _switched(node: ast.AST, number: int, place: Place) -> ast.AST:
    """The node, and the changed node where the switch is on."""
    on = _call("on", number)
    if isinstance(node, ast.If):
        if place.becomes == "if False":
            node.test = ast.BoolOp(ast.And(), [node.test, ast.UnaryOp(ast.Not(), on)])
        else:
            node.test = ast.IfExp(on, ast.UnaryOp(ast.Not(), node.test), node.test)
        return node
    # Only one switch is ever on: the changed text needs no switches of its own.
    changed = ast.parse(place.becomes).body[0]
    if isinstance(node, ast.Return):
        assert isinstance(changed, ast.Return)
        value = changed.value
        if isinstance(value, ast.Constant | ast.Dict | ast.List | ast.Tuple | ast.Call):
            # The expression is evaluated all the same; only its value is replaced.
            value = ast.Subscript(ast.Tuple([node.value, value], ast.Load()), ast.Constant(1), ast.Load())
        node.value = ast.IfExp(on, value, node.value)
        return node
    if isinstance(node, ast.stmt):
        return ast.If(on, [changed], [node])
    assert isinstance(changed, ast.Expr)
    return ast.IfExp(on, changed.value, node)


def rewrite(tree: ast.Module, chosen: Mapping[int, Change], uses: Mapping[str, list[int]]) -> str:
    """The text of a module with each chosen change behind the switch of its number.

    `uses` has the numbers to mark where a function reads a name: constants of this module or of others.
    """
    by_node: dict[int, list[tuple[int, Change]]] = {}
    for number, change in chosen.items():
        by_node.setdefault(id(change.node), []).append((number, change))
    tree = _Rewriter(by_node, uses).visit(tree)
    at = sum(1 for _ in takewhile(_comes_first, tree.body))
    tree.body.insert(at, ast.Import([ast.alias("dragoman_power", SWITCH)]))
    return ast.unparse(ast.fix_missing_locations(tree))


def _comes_first(node: ast.stmt) -> bool:
    """Whether nothing may be put before a statement: a docstring, or an import from the future."""
    match node:
        case ast.Expr(value=ast.Constant()) | ast.ImportFrom(module="__future__"):
            return True
    return False
