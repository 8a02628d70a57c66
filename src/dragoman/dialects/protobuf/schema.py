"""Messages of protobuf from a table of their fields, in a pool of their own.

Invariant: the pool is not protobuf's default one, so that generated code with messages of the same names, such as that
of the official SDK, can be loaded beside it. Tests compare each table with the official SDK.
"""

import re
from types import SimpleNamespace
from typing import Any

from google.protobuf import empty_pb2, struct_pb2, timestamp_pb2
from google.protobuf.descriptor import EnumDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

KNOWN = tuple(module.DESCRIPTOR for module in (empty_pb2, struct_pb2, timestamp_pb2))
"""The files of protobuf's own types that tables name."""

SCALARS = {
    "bool": FieldDescriptorProto.TYPE_BOOL,
    "bytes": FieldDescriptorProto.TYPE_BYTES,
    "int32": FieldDescriptorProto.TYPE_INT32,
    "string": FieldDescriptorProto.TYPE_STRING,
}

FIELD = re.compile(
    r"(?P<number>\d+) (?P<name>\w+): (?:(?P<label>optional|repeated|map) )?(?P<kind>[\w.]+)"
    r"(?: in (?P<oneof>\w+))?(?: as (?P<json>\w+))?"
)
"""A field: its number, name and type; then its oneof, and its name in JSON if that does not follow from the name."""

METHOD = re.compile(r"rpc (\w+): ([\w.]+) -> (stream )?([\w.]+)")


def _pool() -> DescriptorPool:
    pool = DescriptorPool()
    for file in KNOWN:
        pool.AddSerializedFile(file.serialized_pb)
    return pool


POOL = _pool()


def load(name: str, package: str, table: str) -> Any:
    """Add the enums, messages and the service A2AService of a table to the pool, as the file `name`.

    Returns what a generated module has.

    A line that is not indented is a method (`rpc GetTask: GetTaskRequest -> Task`), or begins an enum (`enum Role`) or
    a message (`Task`). Indented below are the values of an enum, or the fields of a message as in FIELD.
    """
    file = FileDescriptorProto(name=name, package=package, syntax="proto3")
    file.dependency.extend(known.name for known in KNOWN)
    enums: set[str] = set()
    message: DescriptorProto | None = None
    for line in table.strip().splitlines():
        if method := METHOD.fullmatch(line):
            if not file.service:
                file.service.add(name="A2AService")
            called, takes, streams, gives = method.groups()
            kinds = {"input_type": _full(package, takes), "output_type": _full(package, gives)}
            file.service[0].method.add(name=called, server_streaming=True if streams else None, **kinds)
        elif line.startswith("enum "):
            message = None
            enums.add(line.removeprefix("enum "))
            file.enum_type.add(name=line.removeprefix("enum "))
        elif not line.startswith(" "):
            message = file.message_type.add(name=line)
        elif message is None:
            for value in line.strip().split(", "):
                word, number = value.split(" ")
                file.enum_type[-1].value.add(name=word, number=int(number))
        else:
            _add_field(package, message, line.strip(), enums)
    for each in file.message_type:  # protobuf wants those of optional fields behind all others
        for field in each.field:
            if field.proto3_optional:
                field.oneof_index = len(each.oneof_decl)
                each.oneof_decl.add(name=f"_{field.name}")
    POOL.AddSerializedFile(file.SerializeToString())
    return _namespace(file.name)


def requests_of(generated: Any) -> dict[str, type[Message]]:
    """Return the types of the requests of A2AService, by procedure and in the order of the proto file."""
    methods = generated.DESCRIPTOR.services_by_name["A2AService"].methods
    return {method.name: GetMessageClass(method.input_type) for method in methods}


def streams_of(generated: Any) -> dict[str, bool]:
    """Return whether each procedure of A2AService answers with a stream."""
    methods = generated.DESCRIPTOR.services_by_name["A2AService"].methods
    return {method.name: bool(method.server_streaming) for method in methods}


def _add_field(package: str, message: DescriptorProto, line: str, enums: set[str]) -> None:
    found = FIELD.fullmatch(line)
    if found is None:
        raise ValueError(f"no field: {line!r}")
    many = found["label"] in ("repeated", "map")
    field = message.field.add(name=found["name"], number=int(found["number"]))
    field.label = FieldDescriptorProto.LABEL_REPEATED if many else FieldDescriptorProto.LABEL_OPTIONAL
    field.json_name = found["json"] or _camel(found["name"])
    if found["label"] == "map":
        entry = message.nested_type.add(name=f"{_camel(found['name'], first=True)}Entry")
        entry.options.map_entry = True
        key = entry.field.add(name="key", number=1, label=FieldDescriptorProto.LABEL_OPTIONAL, json_name="key")
        key.type = FieldDescriptorProto.TYPE_STRING
        value = entry.field.add(name="value", number=2, label=FieldDescriptorProto.LABEL_OPTIONAL, json_name="value")
        _set_kind(package, value, found["kind"], enums)
        field.type = FieldDescriptorProto.TYPE_MESSAGE
        field.type_name = f".{package}.{message.name}.{entry.name}"
        return
    _set_kind(package, field, found["kind"], enums)
    if found["label"] == "optional":
        field.proto3_optional = True
    if found["oneof"]:
        names = [each.name for each in message.oneof_decl]
        if found["oneof"] not in names:
            message.oneof_decl.add(name=found["oneof"])
            names.append(found["oneof"])
        field.oneof_index = names.index(found["oneof"])


def _set_kind(package: str, field: FieldDescriptorProto, kind: str, enums: set[str]) -> None:
    if kind in SCALARS:
        field.type = SCALARS[kind]
    else:
        field.type = FieldDescriptorProto.TYPE_ENUM if kind in enums else FieldDescriptorProto.TYPE_MESSAGE
        field.type_name = _full(package, kind)


def _full(package: str, name: str) -> str:
    return f".{name}" if "." in name else f".{package}.{name}"


def _camel(name: str, *, first: bool = False) -> str:
    words = name.split("_")
    return "".join(word[:1].upper() + word[1:] if place or first else word for place, word in enumerate(words))


def _namespace(file: str) -> SimpleNamespace:
    found = POOL.FindFileByName(file)
    names: dict[str, Any] = {name: GetMessageClass(each) for name, each in found.message_types_by_name.items()}
    for name, enum in found.enum_types_by_name.items():
        names |= {name: _enum(enum)} | {value.name: value.number for value in enum.values}
    return SimpleNamespace(DESCRIPTOR=found, **names)


def _enum(enum: EnumDescriptor) -> SimpleNamespace:
    """The functions of generated enums that are used here."""

    def number(name: str) -> int:
        return int(enum.values_by_name[name].number)

    def name(number: int) -> str:
        return str(enum.values_by_number[number].name)

    def items() -> list[tuple[str, int]]:
        return [(value.name, value.number) for value in enum.values]

    return SimpleNamespace(Value=number, Name=name, items=items, DESCRIPTOR=enum)
