"""ModelTokens: the tokens of a framework's run by the names of its models, for frameworks that count a run as a whole.

Invariant: a run reports exactly the tokens that its framework counted. Those that no named answer accounts for are
reported without a model.
"""

from dragoman.agents.python.context import Context


class ModelTokens:
    """The tokens of answers whose models are known."""

    def __init__(self) -> None:
        self._tokens: dict[str, tuple[int, int]] = {}

    def add(self, model: str | None, input_tokens: int, output_tokens: int) -> None:
        """Count one answer; without a name it is left to the rest."""
        if model:
            given, made = self._tokens.get(model, (0, 0))
            self._tokens[model] = given + input_tokens, made + output_tokens

    def report(self, ctx: Context, input_tokens: int, output_tokens: int) -> None:
        """Report the tokens of the run, which are `input_tokens` and `output_tokens` in all."""
        for model, (given, made) in self._tokens.items():
            given, made = min(given, input_tokens), min(made, output_tokens)
            input_tokens, output_tokens = input_tokens - given, output_tokens - made
            ctx.usage(input=given, output=made, model=model)
        if input_tokens or output_tokens or not self._tokens:
            ctx.usage(input=input_tokens, output=output_tokens)
