"""The messages of Sparkplug B for the protobuf library, as an oracle and for simulated edge nodes."""

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

_SCALARS = {"uint32": 13, "uint64": 4, "float": 2, "double": 1, "bool": 8, "string": 9, "bytes": 12}
_VALUES = (
    *((10, "int_value", "uint32"), (11, "long_value", "uint64"), (12, "float_value", "float")),
    *((13, "double_value", "double"), (14, "boolean_value", "bool"), (15, "string_value", "string")),
    *((16, "bytes_value", "bytes"), (17, "dataset_value", "bytes"), (18, "template_value", "bytes")),
)
_PROPERTY_VALUES = tuple((number - 7, name, kind) for number, name, kind in _VALUES if number < 16)
_MESSAGES = {
    "PropertyValue": ((1, "type", "uint32"), (2, "is_null", "bool")),
    "PropertySet": ((1, "keys", "string*"), (2, "values", "PropertyValue*")),
    "Metric": (
        *((1, "name", "string"), (2, "alias", "uint64"), (3, "timestamp", "uint64"), (4, "datatype", "uint32")),
        *((5, "is_historical", "bool"), (6, "is_transient", "bool"), (7, "is_null", "bool")),
        (9, "properties", "PropertySet"),
    ),
    "Payload": (
        *((1, "timestamp", "uint64"), (2, "metrics", "Metric*"), (3, "seq", "uint64")),
        *((4, "uuid", "string"), (5, "body", "bytes")),
    ),
}
_ALTERNATIVES = {"Metric": _VALUES, "PropertyValue": _PROPERTY_VALUES}


def _add(message, number: int, name: str, kind: str):
    field = message.field.add(name=name, number=number, label=3 if kind.endswith("*") else 1)
    kind = kind.rstrip("*")
    field.type = _SCALARS.get(kind, 11)
    if kind not in _SCALARS:
        field.type_name = f".tahu.{kind}"
    return field


def _payload_class():
    file = descriptor_pb2.FileDescriptorProto(name="tahu.proto", package="tahu", syntax="proto2")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for each in fields:
            _add(message, *each)
        if name in _ALTERNATIVES:
            message.oneof_decl.add(name="value")
            for each in _ALTERNATIVES[name]:
                _add(message, *each).oneof_index = 0
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tahu.Payload"))


Payload = _payload_class()
INT8, INT16, INT32, INT64, UINT8, UINT16, UINT32, UINT64 = range(1, 9)
FLOAT, DOUBLE, BOOLEAN, STRING, DATETIME, TEXT, UUID, DATASET, BYTES, FILE, TEMPLATE = range(9, 20)
_FIELDS = {
    **dict.fromkeys((INT8, INT16, INT32, UINT8, UINT16, UINT32), "int_value"),
    **dict.fromkeys((INT64, UINT64, DATETIME), "long_value"),
    **dict.fromkeys((STRING, TEXT, UUID), "string_value"),
    FLOAT: "float_value",
    DOUBLE: "double_value",
    BOOLEAN: "boolean_value",
    DATASET: "dataset_value",
    TEMPLATE: "template_value",
    **dict.fromkeys((BYTES, FILE), "bytes_value"),
}


def metric(payload, value: object = None, datatype: int = DOUBLE, *, unit: str = "", **attributes: object) -> None:
    """Add a metric. Negative integers are written in two's complement. `attributes`: name, alias, timestamp ..."""
    added = payload.metrics.add(datatype=datatype, **attributes)
    if value is None:
        added.is_null = True
    elif isinstance(value, int) and value < 0:
        setattr(added, _FIELDS[datatype], value % (1 << (64 if datatype == INT64 else 32)))
    else:
        setattr(added, _FIELDS[datatype], value)
    if unit:
        added.properties.keys.append("engUnit")
        added.properties.values.add(type=STRING, string_value=unit)
