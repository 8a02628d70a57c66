"""The tables of protobuf messages say what the official SDK's generated code says: the wire is the official one."""

import subprocess
import sys
from types import ModuleType
from typing import Any

import pytest
from a2a.compat.v0_3 import a2a_v0_3_pb2
from a2a.types import a2a_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from dragoman.dialects.protobuf.schema import load
from dragoman.dialects.v03.protobuf import messages as v03
from dragoman.dialects.v1.protobuf import messages as v1

TABLES = [pytest.param(v1, a2a_pb2, id="1.0"), pytest.param(v03, a2a_v0_3_pb2, id="0.3")]


def described(module: Any) -> FileDescriptorProto:
    """The file of a module without what changes no byte of a message: its name, options and imports."""
    file = FileDescriptorProto()
    module.DESCRIPTOR.CopyToProto(file)
    for field in ("name", "options", "dependency"):
        file.ClearField(field)  # type: ignore[arg-type]
    for message in file.message_type:
        for each in message.field:
            each.ClearField("options")
    for service in file.service:
        service.ClearField("options")
        for method in service.method:
            method.ClearField("options")
    return file


@pytest.mark.parametrize(("ours", "official"), TABLES)
def test_a_table_says_what_the_official_file_says(ours: Any, official: ModuleType) -> None:
    made, wanted = described(ours.pb), described(official)
    assert made.package == wanted.package
    for kind in ("enum_type", "message_type", "service"):
        found = {each.name: each for each in getattr(made, kind)}
        assert list(found) == [each.name for each in getattr(wanted, kind)]
        for each in getattr(wanted, kind):
            assert found[each.name] == each
    assert made == wanted


@pytest.mark.parametrize(("ours", "official"), TABLES)
def test_a_table_with_a_fault_is_found(ours: Any, official: ModuleType) -> None:
    wrong = load(
        f"fault.{ours.PACKAGE}.proto",
        f"fault.{ours.PACKAGE}",
        ours.TABLE.replace("  2 context_id: string", "  22 context_id: string", 1),
    )
    made = described(wrong)
    made.package = ours.PACKAGE
    assert made != described(official)


def test_the_messages_need_no_sdk_and_stand_beside_it() -> None:
    """In whatever order they are loaded."""
    script = """
import sys
class Missing:
    def find_spec(self, name, *rest):
        if name.partition(".")[0] == "a2a" and not there:
            raise ModuleNotFoundError(name)
there = False
sys.meta_path.insert(0, Missing())
import dragoman.bindings.grpc, dragoman.dialects.v1.protobuf, dragoman.dialects.v03.protobuf as v03
from dragoman.dialects.v1.protobuf.messages import pb
assert not any(name.partition(".")[0] == "a2a" for name in sys.modules)
there = True
from a2a.types import a2a_pb2
from a2a.compat.v0_3 import a2a_v0_3_pb2
task = pb.Task(id="t", status=pb.TaskStatus(state=pb.TASK_STATE_WORKING))
assert a2a_pb2.Task.FromString(task.SerializeToString()).status.state == a2a_pb2.TASK_STATE_WORKING
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)
