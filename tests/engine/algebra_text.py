"""Algebra as SPARQL text that is parsed to an equal tree, except for the names that the parser creates."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace

from edge.sparql import algebra as a


def query_text(query: a.Query) -> str:
    """Return the text of a query."""
    base = f"BASE <{query.base}> " if query.base else ""
    graphs = "".join(f"FROM {graph} " for graph in query.default_graphs or ())
    graphs += "".join(f"FROM NAMED {graph} " for graph in query.named_graphs or ())
    if query.form == "SELECT":
        return base + _select(query.pattern, None, graphs)
    pattern, after = _sliced(query.pattern)
    if isinstance(pattern, a.OrderBy):
        after = f"ORDER BY {_order(pattern, None, {})} {after}"
        pattern = pattern.pattern
    template = " ".join(_quad(triple) for triple in query.template)
    of = {"CONSTRUCT": f"{{ {template} }}", "DESCRIBE": " ".join(map(_slot, query.resources)) or "*"}.get(
        query.form, ""
    )
    return f"{base}{query.form} {of} {graphs}WHERE {{ {_group(pattern, None)} }} {after}"


def renamed(node: object) -> object:
    """Return a tree in which the names that the parser creates are numbered in order of appearance."""
    numbers: dict[str, str] = {}

    def rename(part):
        if isinstance(part, a.Blank | a.Fresh):
            return replace(part, label=numbers.setdefault(part.label, f"blank{len(numbers)}"))
        if isinstance(part, a.Variable):
            created = part.name.startswith(".")
            return a.Variable(numbers.setdefault(part.name, f".{len(numbers)}")) if created else part
        if isinstance(part, tuple):
            return tuple(map(rename, part))
        if is_dataclass(part) and type(part).__module__ == a.__name__:
            return type(part)(**{field.name: rename(getattr(part, field.name)) for field in fields(part)})
        return part

    return rename(node)


def _group(node: a.Node, graph: a.Slot | None) -> str:
    """Return the text between the braces of a group."""
    if isinstance(node, a.Filter):
        conditions = " ".join(f"FILTER({_expression(condition, graph, {})})" for condition in node.conditions)
        return f"{_inline(node.pattern, graph)} {conditions}"
    return _inline(node, graph)


def _inline(node: a.Node, graph: a.Slot | None) -> str:
    """Return the text of the first elements of a group."""
    match node:
        case a.Triple() | a.Path():
            verb = _slot(node.predicate) if isinstance(node, a.Triple) else _path(node.path)
            assert node.graph == graph
            return f"{_slot(node.subject)} {verb} {_slot(node.object)} ."
        case a.Join(parts):
            return " ".join(_inline(part, graph) if not n else _part(part, graph) for n, part in enumerate(parts))
        case a.Union(branches):
            return " UNION ".join(_braced(branch, graph) for branch in branches)
        case a.LeftJoin(left, right, condition):
            text = _inline(right, graph)
            if condition is not None:
                text += f" FILTER({_expression(condition, graph, {})})"
            return f"{_inline(left, graph)} OPTIONAL {{ {text} }}"
        case a.Minus(left, right):
            return f"{_inline(left, graph)} MINUS {_braced(right, graph)}"
        case a.Extend(pattern, variable, expression):
            return f"{_inline(pattern, graph)} BIND({_expression(expression, graph, {})} AS {_slot(variable)})"
        case a.Values():
            return _values(node)
        case a.GraphPattern(name, pattern):
            return f"GRAPH {_slot(name)} {_braced(pattern, name)}"
        case a.Service(name, silent, pattern):
            return f"SERVICE {'SILENT ' if silent else ''}{_slot(name)} {_braced(pattern, None)}"
        case a.Filter():
            return _braced(node, graph)
    return f"{{ {_select(node, graph, '')} }}"


def _part(node: a.Node, graph: a.Slot | None) -> str:
    """Return the text of an element of a group that has others before it."""
    return _braced(node, graph) if isinstance(node, a.LeftJoin | a.Minus | a.Extend) else _inline(node, graph)


def _braced(node: a.Node, graph: a.Slot | None) -> str:
    return f"{{ {_group(node, graph)} }}"


def _sliced(node: a.Node) -> tuple[a.Node, str]:
    if not isinstance(node, a.Slice):
        return node, ""
    return node.pattern, (f"OFFSET {node.offset} " if node.offset else "") + (
        "" if node.limit is None else f"LIMIT {node.limit}"
    )


def _order(node: a.OrderBy, graph: a.Slot | None, known: dict[a.Variable, str]) -> str:
    return " ".join(f"{'DESC' if down else 'ASC'}({_expression(one, graph, known)})" for one, down in node.conditions)


def _select(node: a.Node, graph: a.Slot | None, dataset: str) -> str:
    node, after = _sliced(node)
    distinct = ""
    if isinstance(node, a.Distinct):
        distinct, node = "REDUCED " if node.reduced else "DISTINCT ", node.pattern
    assert isinstance(node, a.Project)
    variables, node = node.variables, node.pattern
    order, node = (node, node.pattern) if isinstance(node, a.OrderBy) else (None, node)
    known: dict[a.Variable, str] = {}
    assigned: dict[a.Variable, a.Expression] = {}
    middle = ""
    inner = node
    while isinstance(inner, a.Extend):
        assigned[inner.variable], inner = inner.expression, inner.pattern
    values = ""
    if isinstance(inner, a.Join) and len(inner.parts) == 2 and isinstance(inner.parts[1], a.Values):
        values, inner = _values(inner.parts[1]), inner.parts[0]
    having = inner.conditions if isinstance(inner, a.Filter) else ()
    inner = inner.pattern if having else inner
    if isinstance(inner, a.Group):
        known |= {variable: _aggregate(aggregate, graph) for variable, aggregate in inner.aggregates}
        created = {key for key in inner.keys if key.name.startswith(".")}
        keys: dict[a.Variable, str] = {key: _slot(key) for key in inner.keys}
        node = inner.pattern
        while created:
            assert isinstance(node, a.Extend)
            key = _expression(node.expression, graph, {})
            keys[node.variable] = f"({key})" if node.variable in created else f"({key} AS {_slot(node.variable)})"
            created.discard(node.variable)
            node = node.pattern
        middle = f"GROUP BY {' '.join(keys.values())} " if keys else ""
        if having:
            middle += "HAVING " + " ".join(f"({_expression(condition, graph, known)})" for condition in having)
    else:
        assigned, values = {}, ""
    items = (
        f"({_expression(assigned[variable], graph, known)} AS {_slot(variable)})"
        if variable in assigned
        else _slot(variable)
        for variable in variables
    )
    by = "" if order is None else f"ORDER BY {_order(order, graph, known)}"
    where = f"SELECT {distinct}{' '.join(items) or '*'} {dataset}WHERE {_braced(node, graph)}"
    return f"{where} {middle} {by} {after} {f'VALUES {values[7:]}' if values else ''}"


def _values(values: a.Values) -> str:
    rows = " ".join(f"({' '.join('UNDEF' if cell is None else _slot(cell) for cell in row)})" for row in values.rows)
    return f"VALUES ({' '.join(map(_slot, values.variables))}) {{ {rows} }}"


def _aggregate(aggregate: a.Aggregate, graph: a.Slot | None) -> str:
    of = "*" if aggregate.expression is None else _expression(aggregate.expression, graph, {})
    separator = f"; SEPARATOR = '{aggregate.separator}'" if aggregate.name == "GROUP_CONCAT" else ""
    return f"{aggregate.name}({'DISTINCT ' if aggregate.distinct else ''}{of}{separator})"


def _expression(expression: a.Expression, graph: a.Slot | None, known: dict[a.Variable, str]) -> str:
    """Return an expression as text. `known`: texts of the variables that stand for aggregates."""
    if isinstance(expression, a.Constant):
        return _slot(expression.term)
    if isinstance(expression, a.Reference):
        return known.get(expression.variable) or _slot(expression.variable)
    if isinstance(expression, a.Exists):
        return f"{'NOT ' if expression.negated else ''}EXISTS {_braced(expression.pattern, graph)}"
    arguments = [_expression(argument, graph, known) for argument in expression.arguments]
    name = expression.name
    if expression.function is not None:
        return f"{expression.function}({', '.join(arguments)})"
    if name in ("IN", "NOT IN"):
        return f"({arguments[0]} {name} ({', '.join(arguments[1:])}))"
    if name[0].isupper():
        return f"{name}({', '.join(arguments)})"
    if len(arguments) == 1:
        return f"({name.removeprefix('unary')}({arguments[0]}))"
    return f"({arguments[0]} {name} {arguments[1]})"


def _path(path: a.PathExpression) -> str:
    match path:
        case a.PathLink(predicate):
            return _slot(predicate)
        case a.Inverse(inner):
            return f"(^({_path(inner)}))"
        case a.Sequence(steps):
            return f"({' / '.join(map(_path, steps))})"
        case a.Alternative(choices):
            return f"({' | '.join(map(_path, choices))})"
        case a.Repeat(inner, least, once):
            return f"(({_path(inner)}){'+' if least else '?' if once else '*'})"
    return f"!({' | '.join([*map(_slot, path.forward), *('^' + _slot(one) for one in path.backward)])})"


def _quad(triple: a.Triple) -> str:
    return f"{_slot(triple.subject)} {_slot(triple.predicate)} {_slot(triple.object)} ."


def _slot(slot: a.Slot) -> str:
    if isinstance(slot, a.Variable):
        return f"?{slot.name}"
    if isinstance(slot, a.Blank | a.Fresh):
        return f"_:{slot.label.replace('.', 'created')}"
    return str(slot)
