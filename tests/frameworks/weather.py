"""The tool and the structured answer of the agents of each framework."""

from pydantic import BaseModel


def forecast(city: str) -> str:
    """The forecast for a city."""
    if city == "Atlantis":
        raise ValueError("no such city")
    return f"Sunny in {city}"


class City(BaseModel):
    """A city."""

    name: str
    people: int
