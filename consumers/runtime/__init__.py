"""The engine that runs a consumer group; it knows no group."""
