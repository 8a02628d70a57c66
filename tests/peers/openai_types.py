"""Reads requests for chat completions, one a line, and says of each whether the official package's types take it.

A key that these types do not know is wrong, too. The answer is a line for each: `ok`, or what is wrong.
"""

import sys
from typing import Any

from openai.types.chat import completion_create_params
from pydantic import TypeAdapter, ValidationError
from typing_extensions import is_typeddict


def strict(module: Any) -> None:
    """Let no type of the module take keys that it does not have, and lists be lists.

    As Iterable they would be looked at only when they are read, and a text would be one.
    """
    if hasattr(module, "Iterable"):
        module.Iterable = list
    for value in list(vars(module).values()):
        if is_typeddict(value):
            value.__pydantic_config__ = {"extra": "forbid"}


def main() -> None:
    for name, module in list(sys.modules.items()):
        if name.startswith("openai.types."):
            strict(module)
    adapter: TypeAdapter[Any] = TypeAdapter(completion_create_params.CompletionCreateParamsStreaming)
    for line in sys.stdin:
        try:
            adapter.validate_json(line)
        except ValidationError as error:
            print(str(error).replace("\n", " "), flush=True)
        else:
            print("ok", flush=True)


main()
