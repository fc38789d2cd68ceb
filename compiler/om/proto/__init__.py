"""Messages of the container, from a private descriptor pool.

CANN ships Python modules that register the same message names in protobuf's default pool; a second
registration there is an error, so ours stay apart (D17).
"""

from __future__ import annotations

from importlib.resources import files
from typing import Any

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

_pool = DescriptorPool()
for _file in descriptor_pb2.FileDescriptorSet.FromString(
    files(__name__).joinpath("descriptors.binpb").read_bytes()
).file:
    _pool.Add(_file)


def _message(name: str) -> Any:
    return GetMessageClass(_pool.FindMessageTypeByName(name))


ModelDef: Any = _message("ge.proto.ModelDef")
GraphDef: Any = _message("ge.proto.GraphDef")
OpDef: Any = _message("ge.proto.OpDef")
AttrDef: Any = _message("ge.proto.AttrDef")
TensorDef: Any = _message("ge.proto.TensorDef")
TensorDescriptor: Any = _message("ge.proto.TensorDescriptor")
DumpData: Any = _message("toolkit.dumpdata.DumpData")
ModelTaskDef: Any = _message("domi.ModelTaskDef")
DataType: Any = _pool.FindEnumTypeByName("ge.proto.DataType")
