"""Pages of lists of items, as OpenAI's API has them.

Invariant: a page goes on behind the item that the caller names, whatever came to the list meanwhile.
"""

from collections.abc import Sequence

import msgspec

from dragoman.bindings.http import HttpResponse, json_response
from dragoman.dialects.responses.decode import ItemPage
from dragoman.dialects.responses.objects import ConversationItem
from dragoman.model.errors import InvalidParams


def answer_page(page: ItemPage, items: Sequence[ConversationItem]) -> HttpResponse:
    """Answer with a page of `items`, which come oldest first. Raises InvalidParams if `after` is none of them."""
    ordered = [*reversed(items)] if page.newest_first else [*items]
    begin = 0
    if page.after is not None:
        begin = 1 + next((at for at, item in enumerate(ordered) if item.id == page.after), -1)
        if not begin:
            raise InvalidParams("after", "must be the id of an item of the list")
    shown = ordered[begin : begin + page.limit]
    body = {
        "object": "list",
        "data": shown,
        "first_id": shown[0].id if shown else "",
        "last_id": shown[-1].id if shown else "",
        "has_more": begin + page.limit < len(ordered),
    }
    return json_response(200, msgspec.json.encode(body))
