"""Model of the tables of a mapping file: every key with type and description."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StrictBool, StrictInt, StrictStr

from edge.mapping.toml_table import Table


def _no_boolean(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("must be a number")  # noqa: TRY004 - pydantic reports ValueError as a fault of the file
    return value


def _bounded(value: Decimal) -> Decimal:
    # Conversions are exact: with an exponent such as 1e999999999 one would take all memory.
    if value and (abs(value.adjusted()) > 40 or len(value.as_tuple().digits) > 40):
        raise ValueError("must be a number of at most 40 digits")
    return value


Number = Annotated[Decimal, BeforeValidator(_no_boolean), AfterValidator(_bounded), Field(allow_inf_nan=False)]
Scalar = StrictBool | Annotated[Decimal, Field(allow_inf_nan=False, strict=False)] | StrictStr


class TimeSpec(Table):
    """Position and format of the time in a message."""

    path: str = Field(description="JSON path, or for text payloads the name of the pattern's group.")
    format: str = Field(default="auto", description="auto, iso8601, unix, unix_ms, unix_us, or a strptime pattern.")
    zone: str | None = Field(default=None, description="Zone of times that name none: UTC, +01:00, Europe/Rome.")


class StoreSpec(Table):
    """Selects the readings that are stored in the history."""

    change: StrictBool | None = Field(
        default=None, description="Only where the value is another than the one that was stored last."
    )
    dead_band: Annotated[Number, Field(gt=0)] | None = Field(
        default=None,
        description="Only where the value (after scaling) differs by so much at least from the one stored last.",
    )
    at_most_every: Annotated[Number, Field(gt=0)] | None = Field(
        default=None, description="Seconds that must be between the times of two readings that are stored."
    )


class EventSpec(Table):
    """Readings that are events, and how a repetition of the same event is recognised."""

    id: str | None = Field(
        default=None,
        description="JSON path of a number or text that identifies an event, such as a counter: messages with the same "
        "one are the same event.",
    )
    within: Annotated[Number, Field(gt=0, le=3600)] | None = Field(
        default=None,
        description="Seconds within which an equal value, or an equal value with the same id, is the same event, which "
        "several gateways report. Default: 60 with an id; without one, each message is an event.",
    )


class ConditionSpec(Table):
    """Condition on the payload for a mapping to apply."""

    path: str | None = Field(
        default=None, description="JSON path of the value to check; none: the whole payload as text."
    )
    exists: bool | None = Field(default=None, description="Whether the path must lead somewhere, or must not.")
    equals: Scalar | None = Field(default=None, description="The value must be this.")
    one_of: list[Scalar] | None = Field(default=None, description="The value must be one of these.")
    matches: str | None = Field(default=None, description="A regular expression must be found in the value.")


class ReadingKeys(Table):
    """Keys of a reading; in a mapping or in [defaults] they are defaults."""

    observation: str | None = Field(default=None, description="IRI of the observation: CURIE or IRI, with {captures}.")
    unit: str | None = Field(
        default=None, description="Unit: IRI, symbol or code; where the payload tells one, the unit if it tells none."
    )
    unit_from: str | None = Field(default=None, description="JSON path of a unit code in the payload.")
    units: dict[str, str] | None = Field(default=None, description='Unit codes of payloads to units; "" means no unit.')
    location: str | None = Field(default=None, description="IRI of the feature of interest, with {captures}.")
    property: str | None = Field(default=None, description="IRI of the observed property, with {captures}.")
    sensor: str | None = Field(default=None, description="IRI of the sensor, with {captures}.")
    sensor_label: str | None = Field(
        default=None, description="Name of the sensor for people, with {captures}. Default: the last part of its IRI."
    )
    label: str | None = Field(default=None, description="Short name for people, with {captures}.")
    comment: str | None = Field(default=None, description="Longer text for people, with {captures}.")
    datatype: str | None = Field(
        default=None,
        description="number (default), integer, decimal, double, boolean, string, auto, or another datatype's IRI.",
    )
    values: dict[str, Scalar] | None = Field(
        default=None, description='What texts mean: { "ON" = true, "OFF" = false }.'
    )
    case: Literal["lower", "upper"] | None = Field(
        default=None, description="Case to which a text is changed before all other keys."
    )
    absent: list[str] | None = Field(default=None, description='Texts that mean "no value", such as "nan".')
    scale: Number | None = Field(default=None, description="The value is multiplied by this, exactly.")
    scale_from: str | None = Field(
        default=None, description="JSON path of a number in the payload by which the value is also multiplied."
    )
    scale10_from: str | None = Field(
        default=None,
        description="JSON path of an integer in the payload: the value is multiplied by this power of ten.",
    )
    offset: Number | None = Field(default=None, description="This is added after scaling, exactly.")
    round: Annotated[StrictInt, Field(ge=-40, le=40)] | Literal["down"] | None = Field(
        default=None,
        description='Decimals to which the value is rounded after scaling (half to even); "down": to a whole number, '
        "towards zero.",
    )
    min: Number | None = Field(
        default=None, description="A smaller value (after scaling) is a problem, and no reading."
    )
    max: Number | None = Field(default=None, description="A larger value (after scaling) is a problem, and no reading.")
    decimal_comma: bool | None = Field(default=None, description="Numbers in texts are written 22,5.")
    time: str | TimeSpec | None = Field(default=None, description="JSON path (or group) of the message's timestamp.")
    store: Literal["all", "change", "none"] | StoreSpec | None = Field(
        default=None,
        description="Which readings are stored for the history: none (default), all, change (only where the value is "
        "another than the one stored last), or { dead_band = 0.5, at_most_every = 60 }.",
    )
    event: StrictBool | EventSpec | None = Field(
        default=None,
        description="Whether each reading counts, also with the same value, as of a button: subscribers see it removed "
        'and added. { id = "PATH" }: messages with the same id are one event. { within = 2 }: equal values within 2 s '
        "are.",
    )


class EncodeSpec(Table):
    """Bytes that the JSON of a message has as text."""

    path: str = Field(
        description='JSON path of a text of the payload, which is written in hexadecimal: "A0 {value|u16le}".'
    )
    encoding: Literal["base64", "hex"] = Field(description="How the message represents the bytes.")


class SetSpec(Table):
    """The message that sets the value of an observation at its device."""

    topic: str = Field(description="Topic, with {captures}; {capture...} may hold several levels.")
    payload: Any = Field(
        default="{value}",
        description='A text with {value} and {captures}, or a table, which is sent as JSON: { state = "{value}" }.',
    )
    values: dict[str, Scalar] | None = Field(
        default=None,
        description='Texts by desired value: { true = "ON" }. Default: `values` of the reading, reversed.',
    )
    scale: Number | None = Field(default=None, description="The desired value is multiplied by this, exactly.")
    offset: Number | None = Field(default=None, description="This is added after scaling, exactly.")
    min: Number | None = Field(default=None, description="Smallest desired value.")
    max: Number | None = Field(default=None, description="Largest desired value.")
    step: Annotated[Number, Field(gt=0)] | None = Field(default=None, description="Distance of the values of a slider.")
    encode: EncodeSpec | None = Field(default=None, description="Bytes that a payload of JSON has as text.")
    qos: Annotated[int, Field(ge=0, le=2, strict=True)] | None = Field(
        default=None, description="Quality of service, 0, 1 or 2. Default: 1."
    )
    retain: StrictBool | None = Field(
        default=None, description="Whether the broker retains the message for later subscribers. Default: false."
    )


class ReadingSpec(ReadingKeys):
    """One reading of a payload."""

    path: str | None = Field(default=None, description="JSON path of the value; {key} captures a member's name.")
    record: str | None = Field(default=None, description="Name of the SenML record, with {captures}; default: any.")
    record_unit: str | None = Field(
        default=None, description="Unit code the SenML record must have, with {captures}; default: any."
    )
    pattern: str | None = Field(default=None, description="Regular expression whose group `value` is the value.")
    required: bool | None = Field(default=None, description="Whether it is a problem when the payload lacks the value.")
    default: Scalar | None = Field(
        default=None, description="The value, before its conversion, where the payload does not have the path."
    )
    when: ConditionSpec | list[ConditionSpec] | None = Field(
        default=None, description="Conditions on the payload; all must hold."
    )
    existing: StrictBool | None = Field(
        default=None,
        description="Whether the value only changes an observation that the graph has. Default: false.",
    )
    setter: SetSpec | None = Field(
        default=None, alias="set", description="The message that sets the value at its device."
    )
    ignore: bool | None = Field(
        default=None, description="Take the value away from readings with wildcards; yield nothing."
    )


class FieldSpec(Table):
    """One field of a binary payload. Fields are consecutive."""

    name: str | None = Field(default=None, description="Name of the member that holds the value.")
    type: str | None = Field(
        default=None,
        description="u8 to u64, i8 to i64, f32, f64 (big-endian; u16le and so on are little-endian), hex, text, skip.",
    )
    at: StrictInt | None = Field(
        default=None, description="Where it begins, if not after the field before; negative: from the end."
    )
    size: StrictInt | str | None = Field(
        default=None,
        description="Bytes of hex, text and skip: a number, or the name of an earlier field. Default: the rest.",
    )
    bits: dict[str, StrictInt | tuple[StrictInt, StrictInt]] | None = Field(
        default=None, description="Parts of an integer: bit (0 is the lowest), or [lowest bit, number of bits]."
    )
    fields: list[FieldSpec] | None = Field(default=None, description="Fields that repeat together.")
    repeat: StrictInt | str | None = Field(
        default=None, description="How often: a number, or the name of an earlier field. Default: to the end."
    )
    by: str | None = Field(
        default=None, description="Name of the repeated field whose value names each of the groups. Default: a list."
    )
    on: str | None = Field(default=None, description="Name of the earlier integer field that the cases depend on.")
    cases: dict[str, list[FieldSpec]] | None = Field(
        default=None, description='Fields by the value of `on`: "32", "0x20", or "*" for all others.'
    )


class DecodeSpec(Table):
    """Bytes that a JSON payload has as text."""

    path: str = Field(description="JSON path of the text, of fixed names: the document of the fields takes its place.")
    encoding: Literal["base64", "hex"] = Field(description="How the text represents the bytes.")
    fields: list[FieldSpec] = Field(description="Fields of the bytes.")


class MappingSpec(ReadingSpec):
    """One mapping: its topics and its readings."""

    name: str | None = Field(default=None, description="Name in messages; default: the topic.")
    topic: str | None = Field(
        default=None, description="Topic pattern: +, #, {capture}, {capture:glob*}, {capture...}."
    )
    topic_regex: str | None = Field(default=None, description="Regular expression the whole topic must match as well.")
    payload: Literal["text", "json", "senml", "binary"] | None = Field(
        default=None,
        description="How the payload is read. Default: binary where fields are given, json where a path is, else text.",
    )
    fields: list[FieldSpec] | None = Field(
        default=None, description="Fields of a binary payload; paths refer to these."
    )
    captures: dict[str, str] | None = Field(
        default=None,
        description='Captures from the payload: JSON path ("@" is the object that contains the value) or SenML record '
        'name; "name..." keeps slashes.',
    )
    each: str | None = Field(
        default=None,
        description="JSON path of items: paths, captures, and conditions of readings then refer to each of them.",
    )
    pick: str | None = Field(
        default=None,
        description="One of the items of `each`: max(PATH) or min(PATH), the item with the largest or smallest number.",
    )
    decode: DecodeSpec | None = Field(
        default=None, description="Bytes that a JSON payload has as text; readings refer to their fields."
    )
    also: bool = Field(default=False, description="Let less specific mappings of the same topic apply as well.")
    readings: list[ReadingSpec] | None = Field(default=None, description="Several readings of one payload.")


class ConvertSpec(Table):
    """Conversion of the values of one variable for an actuator's messages."""

    values: dict[str, Scalar] | None = Field(
        default=None, description='Replacements of texts: { true = "ON", false = "OFF" }.'
    )
    scale: Number | None = Field(default=None, description="The value is multiplied by this, exactly.")
    offset: Number | None = Field(default=None, description="This is added after scaling, exactly.")
    min: Number | None = Field(
        default=None, description="A smaller value (after scaling) is a problem, and no message."
    )
    max: Number | None = Field(default=None, description="A larger value (after scaling) is a problem, and no message.")


class CommandSpec(Table):
    """A message that an actuator sends."""

    topic: str | None = Field(
        default=None, description="Topic, with {variables} of the query; {variable...} may hold several levels."
    )
    payload: Any = Field(
        default=None, description='A text with {variables}, or a table, which is sent as JSON: { state = "{state}" }.'
    )
    encoding: Literal["text", "hex"] | None = Field(
        default=None, description="hex: the payload is written in hexadecimal and sent as bytes. Default: text."
    )
    encode: EncodeSpec | None = Field(default=None, description="Bytes that a payload of JSON has as text.")
    qos: Annotated[int, Field(ge=0, le=2, strict=True)] | None = Field(
        default=None, description="Quality of service, 0, 1 or 2. Default: 1."
    )
    retain: StrictBool | None = Field(
        default=None, description="Whether the broker retains the message for later subscribers. Default: false."
    )


class ActuatorSpec(CommandSpec):
    """One actuator: a query, and the message that is sent when its result changes."""

    name: str | None = Field(default=None, description="Name in messages; default: the topic.")
    query: str = Field(description="SPARQL SELECT query whose result is the state to bring about.")
    convert: dict[str, ConvertSpec] = Field(default_factory=dict, description="Conversions, by variable.")
    rate: Annotated[Number, Field(gt=0, le=1000)] | None = Field(
        default=None, description="Maximum messages per second to one topic. Default: actuation.topic_rate."
    )
    removed: CommandSpec | None = Field(
        default=None, description="The message for a topic that no solution names any more. Default: none."
    )
