"""Where handlers run: a pool of threads for plain functions, an event loop for `async def`."""
