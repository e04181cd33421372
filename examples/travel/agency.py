"""A travel agency as an MCP server over stdio: flights and hotels in the May that it sells."""

import random

CITIES = ("Lisbon", "Oslo", "Prague", "Rome", "Vienna", "Zurich")


def find_flights(origin: str, destination: str, day: int) -> str:
    """List flights of a day in May: name, price for each traveller, free seats."""
    if origin == destination or not {origin, destination} <= {*CITIES}:
        raise ValueError(f"No flights from {origin} to {destination}. Cities: {', '.join(CITIES)}.")
    return offers(f"{origin} {destination} {day}", "F", (40, 240), "seats")


def find_hotels(city: str, day: int, nights: int) -> str:
    """List hotels: name, price of the whole stay, free beds."""
    if city not in CITIES:
        raise ValueError(f"No hotels in {city}. Cities: {', '.join(CITIES)}.")
    return offers(f"{city} {day} {nights}", "H", (50 * nights, 150 * nights), "beds")


def offers(key: str, letter: str, prices: tuple[int, int], places: str) -> str:
    """Three offers, always the same for the same key."""
    rng = random.Random(key)
    names = rng.sample(range(100, 1000), 3)
    return "\n".join(f"{letter}{name} EUR {rng.randint(*prices)}, {rng.randint(1, 5)} {places}" for name in names)


if __name__ == "__main__":
    try:
        from mcp.server import MCPServer  # mcp 2
    except ImportError:
        from mcp.server.fastmcp import FastMCP as MCPServer  # mcp 1

    server = MCPServer("agency")
    server.add_tool(find_flights)
    server.add_tool(find_hotels)
    server.run("stdio")
