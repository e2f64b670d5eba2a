"""Algebra as SPARQL text: every node in its own braces, without abbreviations, so that the text is unambiguous."""

from __future__ import annotations

from dataclasses import fields, is_dataclass

import pyoxigraph as ox

from edge.sparql import algebra as a


def query_text(query: a.Query) -> str:
    """Return the text of a query."""
    base = f"BASE <{query.base}> " if query.base else ""
    graphs = "".join(f"FROM <{graph.value}> " for graph in query.default_graphs or ())
    graphs += "".join(f"FROM NAMED <{graph.value}> " for graph in query.named_graphs or ())
    if query.form == "SELECT":
        return base + _select(query.pattern, None, graphs)
    body = f"{graphs}WHERE {{ {group_text(query.pattern)} }}"
    if query.form == "ASK":
        return f"{base}ASK {body}"
    if query.form == "DESCRIBE":
        resources = " ".join(map(slot, query.resources or (a.Variable("nothing"),)))
        return f"{base}DESCRIBE {resources} {body}"
    return f"{base}CONSTRUCT {{ {quads_text(query.template)} }} {body}"


def quads_text(quads: tuple[a.Triple, ...]) -> str:
    """Return the text of a template."""
    return " ".join(_in_graph(f"{slot(q.subject)} {slot(q.predicate)} {slot(q.object)} .", q.graph) for q in quads)


def _in_graph(text: str, graph: a.Slot | None) -> str:
    return text if graph is None else f"GRAPH {slot(graph)} {{ {text} }}"


def group_text(node: a.Node, graph: a.Slot | None = None) -> str:
    """Return the text between the braces of a group. `graph` is the graph of the GRAPH clause around it."""
    if isinstance(node, a.Triple | a.Path):
        assert node.graph == graph, "a pattern is of the graph around it"
        verb = slot(node.predicate) if isinstance(node, a.Triple) else _path(node.path)
        return f"{slot(node.subject)} {verb} {slot(node.object)} ."
    if isinstance(node, a.Join):
        assert len(node.parts) != 1
        assert not any(isinstance(part, a.Join) for part in node.parts), "joins are flat"
        return " ".join(
            group_text(p, graph) if isinstance(p, a.Triple | a.Path) else _braced(p, graph) for p in node.parts
        )
    if isinstance(node, a.Union):
        assert not any(isinstance(branch, a.Union) for branch in node.branches), "unions are flat"
        return " UNION ".join(_braced(branch, graph) for branch in node.branches)
    if isinstance(node, a.LeftJoin):
        condition = "" if node.condition is None else f"FILTER({_expression(node.condition, graph)})"
        return f"{_braced(node.left, graph)} OPTIONAL {{ {_braced(node.right, graph)} {condition} }}"
    if isinstance(node, a.Minus):
        return f"{_braced(node.left, graph)} MINUS {_braced(node.right, graph)}"
    if isinstance(node, a.Filter):
        filters = " ".join(f"FILTER({_expression(condition, graph)})" for condition in node.conditions)
        return f"{_braced(node.pattern, graph)} {filters}"
    if isinstance(node, a.Extend):
        value = _expression(node.expression, graph)
        return f"{_braced(node.pattern, graph)} BIND({value} AS {slot(node.variable)})"
    if isinstance(node, a.Values):
        rows = " ".join(f"({' '.join('UNDEF' if c is None else slot(c) for c in row)})" for row in node.rows)
        return f"VALUES ({' '.join(map(slot, node.variables))}) {{ {rows} }}"
    if isinstance(node, a.GraphPattern):
        return f"GRAPH {slot(node.name)} {_braced(node.pattern, node.name)}"
    if isinstance(node, a.Service):
        return f"SERVICE {'SILENT ' if node.silent else ''}{slot(node.name)} {_braced(node.pattern, None)}"
    return f"{{ {_select(node, graph, '')} }}"


def _braced(node: a.Node, graph: a.Slot | None) -> str:
    return f"{{ {group_text(node, graph)} }}"


def _select(node: a.Node, graph: a.Slot | None, dataset: str) -> str:
    """Return the text of a node that only a SELECT can express, with its modifiers below."""
    after = distinct = ""
    selected = "*"
    if isinstance(node, a.Group):
        aggregates = "".join(f" ({_aggregate(g, graph)} AS {slot(v)})" for v, g in node.aggregates)
        keys = " ".join(map(slot, node.keys))
        by = f"GROUP BY {keys}" if keys else ""
        return f"SELECT {keys}{aggregates or _nothing(node.keys)} WHERE {_braced(node.pattern, graph)} {by}"
    if isinstance(node, a.Slice):
        after = f"OFFSET {node.offset}" + ("" if node.limit is None else f" LIMIT {node.limit}")
        node = node.pattern
    if isinstance(node, a.Distinct):
        distinct = "REDUCED " if node.reduced else "DISTINCT "
        node = node.pattern
    if isinstance(node, a.Project):
        selected = " ".join(map(slot, node.variables)) + _nothing(node.variables)
        node = node.pattern
    if isinstance(node, a.OrderBy):
        order = " ".join(f"{'DESC' if down else 'ASC'}({_expression(e, graph)})" for e, down in node.conditions)
        after = f"ORDER BY {order} {after}"
        node = node.pattern
    return f"SELECT {distinct}{selected} {dataset}WHERE {_braced(node, graph)} {after}"


def _nothing(variables: tuple[a.Variable, ...]) -> str:
    """Return an empty selection, for which SPARQL has no syntax."""
    return "" if variables else " ?nothing"


def _aggregate(aggregate: a.Aggregate, graph: a.Slot | None) -> str:
    distinct = "DISTINCT " if aggregate.distinct else ""
    of = "*" if aggregate.expression is None else _expression(aggregate.expression, graph)
    separator = f"; SEPARATOR = {ox.Literal(aggregate.separator)}" if aggregate.name == "GROUP_CONCAT" else ""
    return f"{aggregate.name}({distinct}{of}{separator})"


def _expression(expression: a.Expression, graph: a.Slot | None) -> str:
    if isinstance(expression, a.Constant):
        return slot(expression.term)
    if isinstance(expression, a.Reference):
        return slot(expression.variable)
    if isinstance(expression, a.Exists):
        return f"{'NOT ' if expression.negated else ''}EXISTS {_braced(expression.pattern, graph)}"
    arguments = [_expression(argument, graph) for argument in expression.arguments]
    if expression.function is not None:
        return f"{expression.function}({', '.join(arguments)})"
    name = expression.name
    if name in ("IN", "NOT IN"):
        return f"({arguments[0]} {name} ({', '.join(arguments[1:])}))"
    if name[0].isalpha() and name not in ("unary-", "unary+"):
        return f"{name}({', '.join(arguments)})"
    if len(arguments) == 1:
        return f"({name.removeprefix('unary')} {arguments[0]})"
    left, right = arguments
    return f"({left} {name} {right})"


def _path(path: a.PathExpression) -> str:
    if isinstance(path, a.PathLink):
        return slot(path.predicate)
    if isinstance(path, a.Inverse):
        return f"(^({_path(path.path)}))"
    if isinstance(path, a.Sequence):
        return f"({' / '.join(map(_path, path.steps))})"
    if isinstance(path, a.Alternative):
        return f"({' | '.join(map(_path, path.choices))})"
    if isinstance(path, a.Repeat):
        return f"(({_path(path.path)}){'+' if path.least else '?' if path.once else '*'})"
    return f"!({' | '.join([*map(slot, path.forward), *('^' + slot(p) for p in path.backward)])})"


def slot(slot: a.Slot) -> str:
    """Return the text of a slot. Blank nodes of patterns become variables, because they may occur in several groups."""
    if isinstance(slot, a.Variable):
        return f"?internal_{slot.name[1:]}" if slot.name[0] == "." else f"?{slot.name}"
    if isinstance(slot, a.Blank):
        return f"?blank_{slot.label.replace('.', '_')}"
    if isinstance(slot, a.Fresh):
        return f"_:fresh_{slot.label.replace('.', '_')}"
    return str(slot.term if isinstance(slot, a.Parameter) else slot)


def parameters(node: object) -> dict[int, a.Parameter]:
    """Return all parameters of a tree, by index."""
    if isinstance(node, a.Parameter):
        return {node.index: node}
    found: dict[int, a.Parameter] = {}
    parts: list[object] = []
    if isinstance(node, tuple):
        parts += node
    elif is_dataclass(node):
        parts += (getattr(node, field.name) for field in fields(node))
    for part in parts:
        found |= parameters(part)
    return found
